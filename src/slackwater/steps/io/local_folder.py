"""A folder of this machine as an object store: what steps read and write outside of a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from slackwater.errors import CloudError, ObjectMissing
from slackwater.steps.files import ProjectFiles
from slackwater.storage import ObjectHead, StoredObject

_SCHEME = "file://"


def files_below(folder: Path) -> ProjectFiles:
    """Return the files of a folder as those of a project."""
    root = folder.resolve()
    return ProjectFiles(f"{_uri(root)}/", partial(LocalFolder, root))


class LocalFolder:
    """An `ObjectStore` of the files below a folder, which have no metadata.

    A URI is `file://` and the absolute path, without escapes.
    """

    def __init__(self, root: Path) -> None:
        """`root` is an absolute path."""
        self._root = root

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:  # noqa: ARG002
        """Write a file, and the folders above it."""
        with _translated("write", uri):
            path = _path(uri)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:  # noqa: ARG002
        """Write a file unless it exists. Returns whether it was written."""
        with _translated("write", uri):
            path = _path(uri)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("xb") as file:
                    file.write(body)
            except FileExistsError:
                return False
        return True

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:  # noqa: ARG002
        """Write a copy of a file like `put_new`."""
        return self.put_new(uri, path.read_bytes())

    def put_if_match(self, uri: str, body: bytes, *, etag: str, metadata: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Write over a file, which has no ETag. Returns True."""
        self.put(uri, body)
        return True

    def delete_if_match(self, uri: str, *, etag: str) -> bool:  # noqa: ARG002
        """Delete a file, which has no ETag. Returns True."""
        self.delete([uri])
        return True

    def head(self, uri: str) -> ObjectHead | None:
        """Return an empty ETag and no metadata; None if there is no file."""
        if not (path := _path(uri)).is_file():
            return None
        found = path.stat()
        return ObjectHead("", {}, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def get(self, uri: str) -> bytes:
        """Return the content of a file. Raises `ObjectMissing`."""
        with _translated("read", uri):
            return _path(uri).read_bytes()

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        """Return `length` bytes of a file from `start`. Raises `ObjectMissing`."""
        with _translated("read", uri), _path(uri).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def metadata(self, uri: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return nothing."""
        return {}

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        """Generate the files whose URI starts with `prefix` and sorts after `start_after`, in order of URI."""
        with _translated("list", prefix):
            yield from (item for item in _list(self._root, prefix) if item.uri > start_after)

    def delete(self, uris: Iterable[str]) -> None:
        """Delete files. Those that do not exist are ignored."""
        for uri in uris:
            with _translated("delete", uri):
                _path(uri).unlink(missing_ok=True)


def _list(folder: Path, prefix: str) -> Iterator[StoredObject]:
    entries = [(entry, f"{_uri(entry)}/" if entry.is_dir() else _uri(entry)) for entry in folder.iterdir()]
    # A folder's name sorts with its slash, as the keys below it do.
    for entry, uri in sorted(entries, key=lambda item: item[1]):
        if not uri.endswith("/"):
            if uri.startswith(prefix) and entry.is_file():
                status = entry.stat()
                yield StoredObject(uri, status.st_size, "", datetime.fromtimestamp(status.st_mtime, UTC))
        # A link that the prefix does not name could lead back to a folder above it.
        elif prefix.startswith(uri) or (uri.startswith(prefix) and not entry.is_symlink()):
            yield from _list(entry, prefix)


def _uri(path: Path) -> str:
    return f"{_SCHEME}{path.as_posix()}"


def _path(uri: str) -> Path:
    return Path(uri.removeprefix(_SCHEME))


@contextmanager
def _translated(action: str, uri: str) -> Iterator[None]:
    """Raise this library's errors for those of the operating system."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissing(f"could not {action} {_path(uri)}: no such file") from error
    except OSError as error:
        raise CloudError(f"could not {action} {_path(uri)}: {error.strerror}") from error
