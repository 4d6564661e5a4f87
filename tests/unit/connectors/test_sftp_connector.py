"""SFTP, against a server of another implementation than our client's."""

from __future__ import annotations

import io
import logging
import os
import random
import socket
import threading
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import asyncssh
import pytest
from paramiko import SFTPClient

from slackwater.errors import DefinitionError, FileTooLarge, FileVanished, OutboundRefused, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.receiver.connectors import sftp_session
from slackwater.receiver.connectors.sftp_connector import SftpConnector
from slackwater.receiver.connectors.sftp_session import fingerprint
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import HostKey, PullConfig
from tests.sftp_server import PASSWORD, USER, SftpServer

pytestmark = pytest.mark.unit

DAYS = [date(2013, 3, 8), date(2013, 3, 9)]
NAME = "x-2013-03-08.csv"
BY_PASSWORD = Credentials(username=USER, password=PASSWORD)
BIG = bytes(range(256)) * (2**13 + 2**7) + b"an odd end"
"""More bytes than the first window of requests reads."""
LAST_OF_WINDOW = 2**21 - 2**15
"""Offset of the last request of the first window."""
NOON = 1_362_744_000


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "out going"
    path.mkdir()
    return path


@pytest.fixture
def server(folder):
    with SftpServer(folder) as server:
        yield server


@pytest.fixture
def open_connector(server):
    """A function that opens partners of the server and records their pauses."""
    opened: list[SftpConnector] = []

    def open_connector(credentials=BY_PASSWORD, *, url=None, host_key=None, allow=("127.0.0.1",), max_file_bytes=2**30):
        pull = PullConfig(
            url=url or server.url.replace(" ", "%20"),
            files="{date}",
            credentials="ssm:acme",
            host_key=host_key or server.host_key,
        )
        open_connector.slept = []
        partner = SftpConnector(
            pull,
            outbound=Outbound.of(allow),
            credentials=credentials,
            max_file_bytes=max_file_bytes,
            sleep=open_connector.slept.append,
        )
        opened.append(partner)
        return partner

    yield open_connector
    for partner in opened:
        partner.close()


def put(path: Path, content: bytes = b"", *, at: int = NOON) -> None:
    """Write a file, with a modification time: the server reports whole seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at, at))


def on_first_request(server: SftpServer, request: str, target: object, act) -> None:
    """Call `act` before the server handles the first such request."""
    pending = [act]

    def before(actual_request: str, actual_target: object) -> None:
        if (actual_request, actual_target) == (request, target) and pending:
            pending.pop()()

    server.before = before


def names(partner: SftpConnector, pattern: str, days=DAYS) -> list[str]:
    return sorted(file.name for file in partner.list(FilePattern(pattern), days))


def fetched(partner: SftpConnector, name: str = NAME) -> bytes:
    target = io.BytesIO(b"what an earlier attempt has left, and longer than some files are")
    download = partner.fetch(name, target)
    assert download.size == len(target.getvalue())
    return target.getvalue()


class TestList:
    def test_size_and_time_of_the_days_files(self, folder, open_connector):
        put(folder / NAME, b"12345")
        put(folder / "x-2013-03-10.csv")
        put(folder / "readme.txt")
        (file,) = open_connector().list(FilePattern("x-{date}.csv"), DAYS)
        assert file.model_dump() == {
            "name": NAME,
            "size": 5,
            "modified": datetime(2013, 3, 8, 12, tzinfo=UTC),
            "etag": None,
        }

    @pytest.mark.parametrize(
        ("pattern", "expected", "entered"),
        [
            ("{date}.csv", ["2013-03-08.csv"], ["."]),
            ("{date:%Y/%m/%d}/x-*.csv", ["2013/03/08/x-1.csv"], ["2013/03/08", "2013/03/09"]),
            ("{date}/{hour}/x.csv", ["2013-03-08/05/x.csv"], ["2013-03-08", "2013-03-08/05", "2013-03-09"]),
            ("a*/{date:%Y/%m}/x.csv", ["a/2013/03/x.csv"], [".", "a", "a/2013", "a/2013/03"]),
        ],
    )
    def test_no_other_folders_are_entered(self, server, open_connector, pattern, expected, entered):
        for name in (
            *("2013-03-08.csv", "2013/03/08/x-1.csv", "2013/03/08/y-1.csv", "2013/03/08/more/x-1.csv"),
            *("2013/02/08/x-1.csv", "2013-03-08/05/x.csv", "2013-03-08/25/x.csv", "a/2013/03/x.csv", "a/2012/03/x.csv"),
        ):
            put(server.folder / name)
        assert names(open_connector(), pattern) == expected
        assert sorted(set(server.listed)) == entered

    def test_folders_and_links_are_not_listed_as_files(self, folder, open_connector):
        put(folder / "real" / NAME)
        (folder / NAME).mkdir()
        (folder / "x-2013-03-09.csv").symlink_to(folder / "real" / NAME)
        (folder / "link").symlink_to(folder / "real")
        assert names(open_connector(), "x-{date}.csv") == []
        assert names(open_connector(), "*/x-{date}.csv") == [f"real/{NAME}"]

    def test_a_day_without_a_folder_has_no_files(self, folder, open_connector):
        put(folder / "2013-03-09" / "a.csv")
        assert names(open_connector(), "{date}/*.csv") == ["2013-03-09/a.csv"]

    @pytest.mark.parametrize("path", ["nowhere", "file"])
    def test_a_url_that_is_not_a_folder_is_reported(self, folder, server, open_connector, path):
        put(folder / "file")
        with pytest.raises(PartnerError, match=rf"{path}: .*folder.*correct `url`"):
            names(open_connector(url=f"{server.url}/{path}".replace(" ", "%20")), "{date}.csv")
        assert open_connector.slept == []

    def test_unusual_file_names_are_listed_and_fetched(self, folder, open_connector):
        for name in ("2013-03-08 größe 日本.csv", "2013-03-08 'a' (1).csv", "2013-03-08%20.csv"):
            put(folder / name, name.encode())
            assert fetched(open_connector(), name) == name.encode()
        assert len(names(open_connector(), "{date}*.csv")) == 3

    def test_a_url_without_a_path_is_the_root(self, folder, server, open_connector):
        put(folder / NAME, b"a")
        name = f"{folder}/{NAME}".lstrip("/")
        partner = open_connector(url=f"sftp://127.0.0.1:{server.port}")
        assert names(partner, f"{folder}/x-{{date}}.csv".lstrip("/")) == [name]
        assert fetched(partner, name) == b"a"

    def test_missing_permissions_are_accepted_and_a_missing_size_is_reported(self, folder, server, open_connector):
        put(folder / NAME, b"a")
        server.hidden = {"permissions"}
        assert (names(open_connector(), "x-{date}.csv"), fetched(open_connector())) == ([NAME], b"a")
        server.hidden = {"size"}
        (file,) = open_connector().list(FilePattern("x-{date}.csv"), DAYS)
        assert file.size is None
        with pytest.raises(PartnerError, match=f"{NAME}: the server does not send its size"):
            open_connector().fetch(NAME, io.BytesIO())

    def test_a_matching_name_that_cannot_be_fetched_is_reported(self, folder, open_connector):
        put(folder / "y\n.txt")
        put(folder / NAME)
        assert names(open_connector(), "x-{date}.csv") == [NAME]
        put(folder / "x-2013-03-08\n.csv")
        with pytest.raises(PartnerError, match=r"'x-2013-03-08\\n\.csv' cannot be fetched: .*rename"):
            names(open_connector(), "x-{date}*.csv")

    def test_a_name_that_is_not_utf_8_is_reported(self, folder, open_connector):
        put(Path(os.fsdecode(os.fsencode(folder) + b"/x-\xe9.csv")))
        with pytest.raises(PartnerError, match="not in UTF-8"):
            names(open_connector(), "x-{date}.csv")

    def test_a_denied_folder_is_reported(self, server, open_connector):
        def refuse(request: str, _target: object) -> None:
            if request == "scandir":
                raise asyncssh.SFTPPermissionDenied("")

        server.before = refuse
        with pytest.raises(PartnerError, match="the server denies reading it"):
            names(open_connector(), "x-{date}.csv")
        assert open_connector.slept == []

    def test_a_lost_connection_is_opened_again(self, folder, server, open_connector):
        put(folder / NAME)
        on_first_request(server, "scandir", str(folder), server.cut)
        assert names(open_connector(), "x-{date}.csv") == [NAME]
        assert server.logins == 2
        assert len(open_connector.slept) == 1

    def test_a_folder_is_never_in_memory_as_a_whole(self, folder, open_connector, monkeypatch):
        monkeypatch.setattr(SFTPClient, "listdir_attr", lambda *_: pytest.fail("it reads all entries into memory"))
        expected = []
        for number in range(300):
            expected += [f"2013-03-08/x{number}", f"2013-03-08/below{number % 3}/x{number}"]
            put(folder / expected[-1])
            put(folder / expected[-2])
            put(folder / f"2013-03-08/y{number}")
        partner = open_connector()
        assert names(partner, "{date}/x*") + names(partner, "{date}/*/x*") == [
            *sorted(name for name in expected if "below" not in name),
            *sorted(name for name in expected if "below" in name),
        ]

    def test_a_connection_that_breaks_within_a_folder_does_not_end_its_listing(self, folder, server, open_connector):
        expected = sorted(f"2013-03-08-{number}" for number in range(300))
        for name in expected:
            put(folder / name)
        last = list(os.scandir(folder))[-1].name
        on_first_request(server, "entry", last.encode(), server.cut)
        assert names(open_connector(), "{date}-*") == expected
        assert server.logins == 2

    def test_a_link_out_of_the_folder_is_not_listed(self, folder, open_connector, tmp_path):
        put(tmp_path / "private" / "2013-03-08.csv")
        (folder / "in").symlink_to(tmp_path / "private")
        with pytest.raises(PartnerError, match="a link leads out of the folder"):
            names(open_connector(), "in/{date}.csv")


class TestFetch:
    @pytest.mark.parametrize("content", [b"", b"x", b"y" * 2**15, b"z" * (2**21 + 1)], ids=len)
    def test_the_content_of_a_file_is_unchanged(self, folder, open_connector, content):
        put(folder / NAME, content)
        assert fetched(open_connector()) == content

    def test_a_large_file_is_read_in_blocks_of_32_kib(self, folder, server, open_connector):
        content = random.Random(8).randbytes(8_000_001)  # noqa: S311 - not a secret
        put(folder / NAME, content)
        assert fetched(open_connector()) == content
        assert sorted(server.reads) == list(range(0, len(content), 2**15))

    def test_all_requests_share_one_connection(self, folder, server, open_connector):
        put(folder / NAME, b"a")
        partner = open_connector()
        for _ in range(2):
            assert (names(partner, "x-{date}.csv"), fetched(partner)) == ([NAME], b"a")
        assert server.logins == 1

    def test_a_missing_file_is_reported_as_vanished(self, open_connector):
        with pytest.raises(FileVanished, match=f"/{NAME}: listed, but gone"):
            open_connector().fetch(NAME, io.BytesIO())
        assert open_connector.slept == []

    def test_the_size_of_a_file_is_limited(self, folder, server, open_connector):
        put(folder / NAME, b"12345")
        assert fetched(open_connector(max_file_bytes=5)) == b"12345"
        server.reads.clear()
        with pytest.raises(FileTooLarge, match="5 bytes, and the limit is 4"):
            open_connector(max_file_bytes=4).fetch(NAME, io.BytesIO())
        assert server.reads == []

    def test_a_broken_download_resumes_at_the_break(self, folder, server, open_connector):
        put(folder / NAME, BIG)
        on_first_request(server, "read", LAST_OF_WINDOW, server.cut)
        assert fetched(open_connector()) == BIG
        read_counts = Counter(server.reads)
        repeated = [offset for offset, times in read_counts.items() if times > 1]
        assert read_counts[0] == 1
        assert repeated
        assert min(repeated) > 0
        assert max(read_counts.values()) == 2
        assert server.logins == 2

    def test_a_file_that_changes_during_a_reconnect_is_fetched_from_the_start(self, folder, server, open_connector):
        put(folder / NAME, BIG)

        def change() -> None:
            put(folder / NAME, BIG[::-1], at=NOON + 1)
            server.cut()

        on_first_request(server, "read", LAST_OF_WINDOW, change)
        assert fetched(open_connector()) == BIG[::-1]

    @pytest.mark.parametrize(
        "new", [BIG[::-1], BIG + b"more", BIG[:-100], b""], ids=["same size", "more", "less", "none"]
    )
    def test_a_file_that_changes_while_it_is_read_is_fetched_again(self, folder, server, open_connector, new):
        put(folder / NAME, BIG)
        on_first_request(server, "read", LAST_OF_WINDOW, lambda: put(folder / NAME, new, at=NOON + 1))
        assert fetched(open_connector()) == new

    def test_a_file_deleted_while_it_is_read_is_reported_as_vanished(self, folder, server, open_connector):
        put(folder / NAME, BIG)
        on_first_request(server, "read", LAST_OF_WINDOW, (folder / NAME).unlink)
        with pytest.raises(FileVanished):
            open_connector().fetch(NAME, io.BytesIO())

    def test_a_file_that_changes_during_each_attempt_is_reported(self, folder, server, open_connector):
        put(folder / NAME, b"a")
        times = iter(range(NOON, NOON + 100))
        server.before = lambda request, _target: (
            os.utime(folder / NAME, (0, next(times))) if request == "lstat" else None
        )
        with pytest.raises(PartnerError, match="changed while it was fetched"):
            open_connector().fetch(NAME, io.BytesIO())
        assert len(open_connector.slept) == 3

    def test_a_link_is_not_fetched(self, folder, open_connector):
        put(folder / "real.csv", b"a")
        (folder / NAME).symlink_to(folder / "real.csv")
        with pytest.raises(PartnerError, match="this is a link or a folder, where a file is expected"):
            open_connector().fetch(NAME, io.BytesIO())

    def test_files_outside_the_folder_are_not_read(self, folder, server, open_connector, tmp_path):
        put(tmp_path / "private" / "key", b"secret")
        put(tmp_path / "out going too" / "key", b"secret")
        for link, to in (("in", folder), ("away", tmp_path / "private"), ("beside", tmp_path / "out going too")):
            (folder / link).symlink_to(to)
        put(folder / "key", b"mine")
        assert fetched(open_connector(), "in/key") == b"mine"
        server.reads.clear()
        for name in ("away/key", "beside/key", "../private/key"):
            with pytest.raises(PartnerError, match="a link leads out of the folder"):
                open_connector().fetch(name, io.BytesIO())
        assert server.reads == []

    def test_a_full_disk_is_not_reported_as_a_partner_error(self, folder, open_connector):
        class Full(io.BytesIO):
            def write(self, block):
                raise OSError(28, "No space left on device")

        put(folder / NAME, b"a")
        with pytest.raises(OSError, match="No space left"):
            open_connector().fetch(NAME, Full())
        assert open_connector.slept == []


class TestSession:
    @pytest.mark.parametrize("key_type", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521", "ssh-rsa"])
    def test_all_types_of_host_and_client_keys_are_accepted(self, folder, key_type):
        put(folder / NAME, b"a")
        with SftpServer(folder, host_key=key_type, client_key=key_type) as server:
            pull = PullConfig(
                url=server.url.replace(" ", "%20"), files="{date}", credentials="ssm:a", host_key=server.host_key
            )
            credentials = Credentials(username=USER, private_key=server.private_key)
            options = {"outbound": Outbound.of(["127.0.0.1"]), "credentials": credentials, "max_file_bytes": 9}
            partner = SftpConnector(pull, **options)
            assert fetched(partner) == b"a"
            partner.close()

    def test_a_different_host_key_is_refused(self, open_connector, server):
        other = asyncssh.generate_private_key("ssh-ed25519")
        partner = open_connector(host_key=other.export_public_key().decode())
        with pytest.raises(PartnerError, match="if the partner confirms the new one") as failure:
            names(partner, "{date}")
        own = asyncssh.import_public_key(server.host_key)
        assert f"is {own.get_fingerprint()}, and not {other.get_fingerprint()}" in str(failure.value)
        assert (server.logins, open_connector.slept) == (0, [])

    def test_a_host_key_type_that_the_server_lacks_is_reported(self, open_connector):
        other = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
        with pytest.raises(PartnerError, match=r"no host key of the type .*compare with ssh-keyscan 127\.0\.0\.1"):
            names(open_connector(host_key=other), "{date}")
        assert open_connector.slept == []

    @pytest.mark.parametrize("credential", ["password", "private_key"])
    def test_rejected_credentials_are_not_tried_again(self, open_connector, server, credential):
        secret = {"password": "wrong horse", "private_key": _private_key("ssh-ed25519")}[credential]
        partner = open_connector(Credentials.model_validate({"username": USER, credential: secret}))
        with pytest.raises(PartnerError, match="the credentials in ssm:acme are not accepted") as failure:
            names(partner, "{date}")
        assert "wrong" not in str(failure.value)
        assert (len(server.connections), server.logins, open_connector.slept) == (1, 0, [])

    def test_a_server_that_requires_two_factors_is_reported(self, monkeypatch, open_connector):
        monkeypatch.setattr(sftp_session.Transport, "auth_password", lambda *_: ["publickey"])
        with pytest.raises(PartnerError, match=r"in ssm:acme are not accepted \(it also asks for publickey\)"):
            names(open_connector(), "{date}")

    def test_an_invalid_key_is_not_shown(self, open_connector, server):
        locked = server.client_key.export_private_key(passphrase="passphrase", rounds=50).decode()
        other_format = server.client_key.export_private_key("pkcs8-pem").decode()
        for key in ("garbage", locked, other_format, server.private_key[:200]):
            with pytest.raises(DefinitionError, match="ssm:acme: its `private_key` is not") as failure:
                names(open_connector(Credentials(username=USER, private_key=key)), "{date}")
            assert key[-20:] not in str(failure.value)
            assert failure.value.__context__ is None

    def test_credentials_without_a_username_are_refused(self, open_connector):
        with pytest.raises(DefinitionError, match="ssm:acme: sftp needs a `username`"):
            names(open_connector(Credentials(token="t")), "{date}")

    def test_a_server_that_is_not_allowed_is_not_connected_to(self, open_connector, server):
        with pytest.raises(OutboundRefused, match=r"127\.0\.0\.1"):
            names(open_connector(allow=()), "{date}")
        assert (server.connections, open_connector.slept) == ([], [])

    def test_an_unreachable_server_is_retried_and_reported(self, open_connector):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with pytest.raises(PartnerError, match=f"127.0.0.1:{port}: no session: .*refused"):
            names(open_connector(url=f"sftp://127.0.0.1:{port}/x"), "{date}")
        assert len(open_connector.slept) == 3

    @pytest.mark.parametrize("greeting", [b"SSH-2.0-mute\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    def test_a_server_without_a_usable_greeting_is_reported(self, monkeypatch, open_connector, greeting):
        monkeypatch.setattr(sftp_session, "_TIMEOUT_SECONDS", 0.05)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            threading.Thread(target=_greet, args=(mute, greeting), daemon=True).start()
            with pytest.raises(PartnerError, match="no session: "):
                names(open_connector(url=f"sftp://127.0.0.1:{mute.getsockname()[1]}/x"), "{date}")

    def test_close_ends_all_threads(self, folder, server, open_connector):
        put(folder / NAME, BIG)
        before = set(threading.enumerate())
        partner = open_connector()
        on_first_request(server, "read", LAST_OF_WINDOW, server.cut)
        assert fetched(partner) == BIG
        partner.close()
        partner.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
            assert not thread.is_alive()

    def test_logs_contain_no_credentials(self, folder, server, open_connector, caplog):
        put(folder / NAME, b"a")
        caplog.set_level(logging.DEBUG, logger="paramiko")
        for credentials in (BY_PASSWORD, Credentials(username=USER, private_key=server.private_key)):
            assert fetched(open_connector(credentials)) == b"a"
        assert "Authentication (password) successful" in caplog.text
        assert "Authentication (publickey) successful" in caplog.text
        assert PASSWORD not in caplog.text
        assert not [line for line in server.private_key.splitlines() if line in caplog.text]


class TestHostKey:
    def test_a_host_key_may_have_a_comment(self):
        key = asyncssh.generate_private_key("ssh-ed25519", comment="of the partner").export_public_key().decode()
        assert HostKey.parse(key) == HostKey.parse(" ".join(key.split()[:2]))
        assert fingerprint(HostKey.parse(key).blob) == asyncssh.import_public_key(key).get_fingerprint()

    @pytest.mark.parametrize(
        "value",
        [
            "",
            "ssh-ed25519",
            "ssh-dss AAAAB3NzaC1kc3M=",
            "ssh-ed25519 AAAA!",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE",
            "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIA==",
            "host ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA==",
        ],
    )
    def test_a_malformed_host_key_is_refused(self, value):
        with pytest.raises(ValueError, match="is not a host key"):
            HostKey.parse(value)


def _private_key(key_type: str) -> str:
    return asyncssh.generate_private_key(key_type).export_private_key().decode()


def _greet(listener: socket.socket, greeting: bytes) -> None:
    """Accept connections, and send nothing after the greeting."""
    kept = []
    try:
        while True:
            kept.append(listener.accept()[0])
            kept[-1].sendall(greeting)
    except OSError:
        for connection in kept:
            connection.close()
