"""A partner's SFTP server on this machine: another implementation than our client's, serving real files."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType

import asyncssh

USER, PASSWORD = "acme", "correct horse battery staple"


class SftpServer:
    """Serves all of the file system, from another thread, to a user with a password or a key."""

    def __init__(self, folder: Path, *, host_key: str = "ssh-ed25519", client_key: str = "ssh-ed25519") -> None:
        self.folder = folder
        self.client_key = asyncssh.generate_private_key(client_key)
        self.before: Callable[[str, object], None] = lambda request, target: None
        """Called with each request that is served, `read`, `scandir` or `lstat`, and with its offset or path, and with
        each `entry` of a folder and its name."""
        self.reads: list[int] = []
        """Offsets of the read requests."""
        self.listed: list[str] = []
        """Folders that were listed."""
        self.hidden: set[str] = set()
        """Attributes of files that it does not send: `size`, or `permissions` (which hold the file type)."""
        self.logins = 0
        self.connections: list[asyncssh.SSHServerConnection] = []
        self._key = asyncssh.generate_private_key(host_key)
        self._ready, self._stopped = threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve)
        self.port = 0

    @property
    def host_key(self) -> str:
        """As `ssh-keyscan` shows it, without the host."""
        return self._key.export_public_key().decode().strip()

    @property
    def private_key(self) -> str:
        return self.client_key.export_private_key().decode()

    @property
    def url(self) -> str:
        return f"sftp://127.0.0.1:{self.port}{self.folder}"

    def cut(self) -> None:
        """Close all connections without a message."""
        for connection in self.connections:
            connection.abort()

    def __enter__(self) -> SftpServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Login(self),
            sftp_factory=lambda channel: _Files(self, channel),
            server_host_keys=[self._key],
            authorized_client_keys=asyncssh.import_authorized_keys(self.client_key.export_public_key().decode()),
        )
        self.port = acceptor.get_port()
        self._ready.set()
        await self._stopped.wait()
        self.cut()
        acceptor.close()
        await acceptor.wait_closed()


class _Login(asyncssh.SSHServer):
    def __init__(self, server: SftpServer) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._server.connections.append(conn)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)

    def auth_completed(self) -> None:
        self._server.logins += 1


class _Files(asyncssh.SFTPServer):
    def __init__(self, server: SftpServer, channel: asyncssh.SSHServerChannel) -> None:
        super().__init__(channel)
        self._server = server

    def read(self, file_obj: object, offset: int, size: int) -> bytes:
        self._server.reads.append(offset)
        self._server.before("read", offset)
        return super().read(file_obj, offset, size)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        self._server.listed.append(os.path.relpath(path.decode(), self._server.folder))
        self._server.before("scandir", path.decode())
        async for name in super().scandir(path):
            self._server.before("entry", name.filename)
            self._hide(name.attrs)
            yield name

    def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        self._server.before("lstat", path.decode())
        return self._hide(asyncssh.SFTPAttrs.from_local(super().lstat(path)))

    def _hide(self, attributes: asyncssh.SFTPAttrs) -> asyncssh.SFTPAttrs:
        for name in self._server.hidden:
            setattr(attributes, name, None)
        return attributes
