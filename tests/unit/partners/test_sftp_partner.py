"""SFTP, against a server that is not of our client's making."""

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

from slackwater.errors import DefinitionError, FileTooLarge, FileVanished, OutboundRefused, PartnerError
from slackwater.receiver.partners import sftp_session
from slackwater.receiver.partners.credentials import Credentials
from slackwater.receiver.partners.outbound import Outbound
from slackwater.receiver.partners.sftp_partner import SftpPartner
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.host_key import HostKey
from slackwater.sources.pull_config import PullConfig
from tests.sftp_server import PASSWORD, USER, SftpServer

pytestmark = pytest.mark.unit

DAYS = [date(2013, 3, 8), date(2013, 3, 9)]
NAME = "x-2013-03-08.csv"
BY_PASSWORD = Credentials(username=USER, password=PASSWORD)
BIG = bytes(range(256)) * (2**13 + 2**7) + b"an odd end"
"""More than what is under way at first."""
LAST_OF_WINDOW = 2**21 - 2**15
"""Offset of the last request of those that are under way at first."""
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
def open_to(server):
    """Opens partners of the server; what they are to sleep is noted."""
    opened: list[SftpPartner] = []

    def open_to(credentials=BY_PASSWORD, *, url=None, host_key=None, allow=("127.0.0.1",), most=2**30):
        pull = PullConfig(
            url=url or server.url.replace(" ", "%20"),
            files="{date}",
            credentials="ssm:acme",
            host_key=host_key or server.host_key,
        )
        open_to.slept = []
        partner = SftpPartner(
            pull,
            outbound=Outbound.of(allow),
            credentials=credentials,
            max_file_bytes=most,
            sleep=open_to.slept.append,
        )
        opened.append(partner)
        return partner

    yield open_to
    for partner in opened:
        partner.close()


def put(path: Path, content: bytes = b"", *, at: int = NOON) -> None:
    """Write a file, with a modification time: two within one second could not be distinguished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at, at))


def once(server: SftpServer, request: str, about: object, act) -> None:
    """Have the server `act` when it is asked that for the first time."""
    left = [act]

    def before(asked: str, of: object) -> None:
        if (asked, of) == (request, about) and left:
            left.pop()()

    server.before = before


def names(partner: SftpPartner, pattern: str, days=DAYS) -> list[str]:
    return sorted(file.name for file in partner.list(FilePattern(pattern), days))


def fetched(partner: SftpPartner, name: str = NAME) -> bytes:
    into = io.BytesIO(b"what an earlier attempt has left, and longer than some files are")
    download = partner.fetch(name, into)
    assert download.size == len(into.getvalue())
    return into.getvalue()


class TestList:
    def test_size_and_time_of_the_days_files(self, folder, open_to):
        put(folder / NAME, b"12345")
        put(folder / "x-2013-03-10.csv")
        put(folder / "readme.txt")
        (file,) = open_to().list(FilePattern("x-{date}.csv"), DAYS)
        assert file.model_dump() == {
            "name": NAME,
            "size": 5,
            "modified": datetime(2013, 3, 8, 12, tzinfo=UTC),
            "etag": None,
        }

    @pytest.mark.parametrize(
        ("pattern", "wanted", "entered"),
        [
            ("{date}.csv", ["2013-03-08.csv"], ["."]),
            ("{date:%Y/%m/%d}/x-*.csv", ["2013/03/08/x-1.csv"], ["2013/03/08", "2013/03/09"]),
            ("{date}/{hour}/x.csv", ["2013-03-08/05/x.csv"], ["2013-03-08", "2013-03-08/05", "2013-03-09"]),
            ("a*/{date:%Y/%m}/x.csv", ["a/2013/03/x.csv"], [".", "a", "a/2013", "a/2013/03"]),
        ],
    )
    def test_no_other_folders_are_entered(self, server, open_to, pattern, wanted, entered):
        for name in (
            *("2013-03-08.csv", "2013/03/08/x-1.csv", "2013/03/08/y-1.csv", "2013/03/08/more/x-1.csv"),
            *("2013/02/08/x-1.csv", "2013-03-08/05/x.csv", "2013-03-08/25/x.csv", "a/2013/03/x.csv", "a/2012/03/x.csv"),
        ):
            put(server.folder / name)
        assert names(open_to(), pattern) == wanted
        assert sorted(set(server.listed)) == entered

    def test_folders_and_links_are_no_files(self, folder, open_to):
        put(folder / "real" / NAME)
        (folder / NAME).mkdir()
        (folder / "x-2013-03-09.csv").symlink_to(folder / "real" / NAME)
        (folder / "link").symlink_to(folder / "real")
        assert names(open_to(), "x-{date}.csv") == []
        assert names(open_to(), "*/x-{date}.csv") == [f"real/{NAME}"]

    def test_a_day_without_a_folder_has_no_files(self, folder, open_to):
        put(folder / "2013-03-09" / "a.csv")
        assert names(open_to(), "{date}/*.csv") == ["2013-03-09/a.csv"]

    @pytest.mark.parametrize("path", ["nowhere", "file"])
    def test_an_address_that_is_no_folder(self, folder, server, open_to, path):
        put(folder / "file")
        with pytest.raises(PartnerError, match=rf"{path}: .*folder.*correct `url`"):
            names(open_to(url=f"{server.url}/{path}".replace(" ", "%20")), "{date}.csv")
        assert open_to.slept == []

    def test_names_of_all_kinds(self, folder, open_to):
        for name in ("2013-03-08 größe 日本.csv", "2013-03-08 'a' (1).csv", "2013-03-08%20.csv"):
            put(folder / name, name.encode())
            assert fetched(open_to(), name) == name.encode()
        assert len(names(open_to(), "{date}*.csv")) == 3

    def test_an_address_without_a_path_is_the_root(self, folder, server, open_to):
        put(folder / NAME, b"a")
        name = f"{folder}/{NAME}".lstrip("/")
        of = open_to(url=f"sftp://127.0.0.1:{server.port}")
        assert names(of, f"{folder}/x-{{date}}.csv".lstrip("/")) == [name]
        assert fetched(of, name) == b"a"

    def test_a_server_that_tells_less(self, folder, server, open_to):
        put(folder / NAME, b"a")
        server.hidden = {"permissions"}
        assert (names(open_to(), "x-{date}.csv"), fetched(open_to())) == ([NAME], b"a")
        server.hidden = {"size"}
        (file,) = open_to().list(FilePattern("x-{date}.csv"), DAYS)
        assert file.size is None
        with pytest.raises(PartnerError, match=f"{NAME}: the server does not send its size"):
            open_to().fetch(NAME, io.BytesIO())

    def test_a_wanted_name_that_is_no_path(self, folder, open_to):
        put(folder / "y\n.txt")
        put(folder / NAME)
        assert names(open_to(), "x-{date}.csv") == [NAME]
        put(folder / "x-2013-03-08\n.csv")
        with pytest.raises(PartnerError, match=r"'x-2013-03-08\\n\.csv' cannot be fetched: .*rename"):
            names(open_to(), "x-{date}*.csv")

    def test_a_name_that_is_no_text(self, folder, open_to):
        put(Path(os.fsdecode(os.fsencode(folder) + b"/x-\xe9.csv")))
        with pytest.raises(PartnerError, match="not in UTF-8"):
            names(open_to(), "x-{date}.csv")

    def test_a_folder_that_may_not_be_read(self, server, open_to):
        def refuse(request: str, about: object) -> None:
            if request == "scandir":
                raise asyncssh.SFTPPermissionDenied("")

        server.before = refuse
        with pytest.raises(PartnerError, match="the server denies reading it"):
            names(open_to(), "x-{date}.csv")
        assert open_to.slept == []

    def test_a_cut_connection_is_made_anew(self, folder, server, open_to):
        put(folder / NAME)
        once(server, "scandir", str(folder), server.cut)
        assert names(open_to(), "x-{date}.csv") == [NAME]
        assert server.logins == 2
        assert len(open_to.slept) == 1

    def test_a_folder_that_leads_away_is_not_listed(self, folder, open_to, tmp_path):
        put(tmp_path / "private" / "2013-03-08.csv")
        (folder / "in").symlink_to(tmp_path / "private")
        with pytest.raises(PartnerError, match="a link leads out of the folder"):
            names(open_to(), "in/{date}.csv")


class TestFetch:
    @pytest.mark.parametrize("content", [b"", b"x", b"y" * 2**15, b"z" * (2**21 + 1)], ids=len)
    def test_a_file_as_it_is(self, folder, open_to, content):
        put(folder / NAME, content)
        assert fetched(open_to()) == content

    def test_a_big_file(self, folder, server, open_to):
        content = random.Random(8).randbytes(8_000_001)  # noqa: S311 - not a secret
        put(folder / NAME, content)
        assert fetched(open_to()) == content
        assert sorted(server.reads) == list(range(0, len(content), 2**15))

    def test_one_connection_for_all(self, folder, server, open_to):
        put(folder / NAME, b"a")
        partner = open_to()
        for _ in range(2):
            assert (names(partner, "x-{date}.csv"), fetched(partner)) == ([NAME], b"a")
        assert server.logins == 1

    def test_one_that_is_gone(self, open_to):
        with pytest.raises(FileVanished, match=f"/{NAME}: listed, but gone"):
            open_to().fetch(NAME, io.BytesIO())
        assert open_to.slept == []

    def test_no_more_than_may_be(self, folder, server, open_to):
        put(folder / NAME, b"12345")
        assert fetched(open_to(most=5)) == b"12345"
        server.reads.clear()
        with pytest.raises(FileTooLarge, match="5 bytes, and the limit is 4"):
            open_to(most=4).fetch(NAME, io.BytesIO())
        assert server.reads == []

    def test_it_goes_on_where_it_was_cut_off(self, folder, server, open_to):
        put(folder / NAME, BIG)
        once(server, "read", LAST_OF_WINDOW, server.cut)
        assert fetched(open_to()) == BIG
        asked = Counter(server.reads)
        again = [offset for offset, times in asked.items() if times > 1]
        assert asked[0] == 1
        assert again
        assert min(again) > 0
        assert max(asked.values()) == 2
        assert server.logins == 2

    def test_a_file_that_changes_while_it_is_cut_off_begins_anew(self, folder, server, open_to):
        put(folder / NAME, BIG)

        def change() -> None:
            put(folder / NAME, BIG[::-1], at=NOON + 1)
            server.cut()

        once(server, "read", LAST_OF_WINDOW, change)
        assert fetched(open_to()) == BIG[::-1]

    @pytest.mark.parametrize(
        "new", [BIG[::-1], BIG + b"more", BIG[:-100], b""], ids=["same size", "more", "less", "none"]
    )
    def test_a_file_that_changes_while_it_is_read_is_read_anew(self, folder, server, open_to, new):
        put(folder / NAME, BIG)
        once(server, "read", LAST_OF_WINDOW, lambda: put(folder / NAME, new, at=NOON + 1))
        assert fetched(open_to()) == new

    def test_one_that_is_taken_away_while_it_is_read(self, folder, server, open_to):
        put(folder / NAME, BIG)
        once(server, "read", LAST_OF_WINDOW, (folder / NAME).unlink)
        with pytest.raises(FileVanished):
            open_to().fetch(NAME, io.BytesIO())

    def test_one_that_never_stands_still(self, folder, server, open_to):
        put(folder / NAME, b"a")
        times = iter(range(NOON, NOON + 100))
        server.before = lambda request, about: os.utime(folder / NAME, (0, next(times))) if request == "lstat" else None
        with pytest.raises(PartnerError, match="changed while it was fetched"):
            open_to().fetch(NAME, io.BytesIO())
        assert len(open_to.slept) == 3

    def test_a_link_is_no_file(self, folder, open_to):
        put(folder / "real.csv", b"a")
        (folder / NAME).symlink_to(folder / "real.csv")
        with pytest.raises(PartnerError, match="this is a link or a folder, where a file is expected"):
            open_to().fetch(NAME, io.BytesIO())

    def test_nothing_outside_of_the_folder_is_read(self, folder, server, open_to, tmp_path):
        put(tmp_path / "private" / "key", b"secret")
        put(tmp_path / "out going too" / "key", b"secret")
        for link, to in (("in", folder), ("away", tmp_path / "private"), ("beside", tmp_path / "out going too")):
            (folder / link).symlink_to(to)
        put(folder / "key", b"mine")
        assert fetched(open_to(), "in/key") == b"mine"
        server.reads.clear()
        for name in ("away/key", "beside/key", "../private/key"):
            with pytest.raises(PartnerError, match="a link leads out of the folder"):
                open_to().fetch(name, io.BytesIO())
        assert server.reads == []

    def test_a_full_disk_is_no_fault_of_the_partner_s(self, folder, open_to):
        class Full(io.BytesIO):
            def write(self, block):
                raise OSError(28, "No space left on device")

        put(folder / NAME, b"a")
        with pytest.raises(OSError, match="No space left"):
            open_to().fetch(NAME, Full())
        assert open_to.slept == []


class TestSession:
    @pytest.mark.parametrize("key_type", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp521", "ssh-rsa"])
    def test_keys_of_all_kinds_of_servers_and_clients(self, folder, key_type):
        put(folder / NAME, b"a")
        with SftpServer(folder, host_key=key_type, client_key=key_type) as server:
            pull = PullConfig(
                url=server.url.replace(" ", "%20"), files="{date}", credentials="ssm:a", host_key=server.host_key
            )
            credentials = Credentials(username=USER, private_key=server.private_key)
            options = {"outbound": Outbound.of(["127.0.0.1"]), "credentials": credentials, "max_file_bytes": 9}
            partner = SftpPartner(pull, **options)
            assert fetched(partner) == b"a"
            partner.close()

    def test_another_server_s_key(self, open_to, server):
        other = asyncssh.generate_private_key("ssh-ed25519")
        partner = open_to(host_key=other.export_public_key().decode())
        with pytest.raises(PartnerError, match="if the partner confirms the new one") as failure:
            names(partner, "{date}")
        own = asyncssh.import_public_key(server.host_key)
        assert f"is {own.get_fingerprint()}, and not {other.get_fingerprint()}" in str(failure.value)
        assert (server.logins, open_to.slept) == (0, [])

    def test_a_key_of_a_type_that_the_server_does_not_have(self, open_to):
        other = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
        with pytest.raises(PartnerError, match=r"no host key of the type .*compare with ssh-keyscan 127\.0\.0\.1"):
            names(open_to(host_key=other), "{date}")
        assert open_to.slept == []

    @pytest.mark.parametrize("credential", ["password", "private_key"])
    def test_who_is_not_let_in_does_not_try_again(self, open_to, server, credential):
        secret = {"password": "wrong horse", "private_key": _private_key("ssh-ed25519")}[credential]
        partner = open_to(Credentials.model_validate({"username": USER, credential: secret}))
        with pytest.raises(PartnerError, match="the credentials in ssm:acme are not accepted") as failure:
            names(partner, "{date}")
        assert "wrong" not in str(failure.value)
        assert (len(server.connections), server.logins, open_to.slept) == (1, 0, [])

    def test_a_server_that_asks_for_more_than_one_proof(self, monkeypatch, open_to):
        monkeypatch.setattr(sftp_session.Transport, "auth_password", lambda *_: ["publickey"])
        with pytest.raises(PartnerError, match=r"in ssm:acme are not accepted \(it also asks for publickey\)"):
            names(open_to(), "{date}")

    def test_an_invalid_key_is_not_shown(self, open_to, server):
        locked = server.client_key.export_private_key(passphrase="passphrase", rounds=50).decode()
        other_form = server.client_key.export_private_key("pkcs8-pem").decode()
        for text in ("garbage", locked, other_form, server.private_key[:200]):
            with pytest.raises(DefinitionError, match="ssm:acme: its `private_key` is not") as failure:
                names(open_to(Credentials(username=USER, private_key=text)), "{date}")
            assert text[-20:] not in str(failure.value)
            assert failure.value.__context__ is None

    def test_credentials_for_something_else(self, open_to):
        with pytest.raises(DefinitionError, match="ssm:acme: sftp needs a `username`"):
            names(open_to(Credentials(token="t")), "{date}")

    def test_a_server_that_is_not_allowed(self, open_to, server):
        with pytest.raises(OutboundRefused, match=r"127\.0\.0\.1"):
            names(open_to(allow=()), "{date}")
        assert (server.connections, open_to.slept) == ([], [])

    def test_a_server_that_is_not_there(self, open_to):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with pytest.raises(PartnerError, match=f"127.0.0.1:{port}: no session: .*refused"):
            names(open_to(url=f"sftp://127.0.0.1:{port}/x"), "{date}")
        assert len(open_to.slept) == 3

    @pytest.mark.parametrize("greeting", [b"SSH-2.0-mute\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    def test_a_server_that_says_nothing_of_use(self, monkeypatch, open_to, greeting):
        monkeypatch.setattr(sftp_session, "_TIMEOUT_SECONDS", 0.05)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            threading.Thread(target=_greet, args=(mute, greeting), daemon=True).start()
            with pytest.raises(PartnerError, match="no session: "):
                names(open_to(url=f"sftp://127.0.0.1:{mute.getsockname()[1]}/x"), "{date}")

    def test_everything_is_closed(self, folder, server, open_to):
        put(folder / NAME, BIG)
        before = set(threading.enumerate())
        partner = open_to()
        once(server, "read", LAST_OF_WINDOW, server.cut)
        assert fetched(partner) == BIG
        partner.close()
        partner.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
            assert not thread.is_alive()

    def test_logs_hold_no_credentials(self, folder, server, open_to, caplog):
        put(folder / NAME, b"a")
        caplog.set_level(logging.DEBUG, logger="paramiko")
        for credentials in (BY_PASSWORD, Credentials(username=USER, private_key=server.private_key)):
            assert fetched(open_to(credentials)) == b"a"
        assert "Authentication (password) successful" in caplog.text
        assert "Authentication (publickey) successful" in caplog.text
        assert PASSWORD not in caplog.text
        assert not [line for line in server.private_key.splitlines() if line in caplog.text]


class TestHostKey:
    def test_a_comment_may_follow(self):
        key = asyncssh.generate_private_key("ssh-ed25519", comment="of the partner").export_public_key().decode()
        assert HostKey.parse(key) == HostKey.parse(" ".join(key.split()[:2]))
        assert HostKey.parse(key).fingerprint == asyncssh.import_public_key(key).get_fingerprint()

    @pytest.mark.parametrize(
        "text",
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
    def test_what_is_none(self, text):
        with pytest.raises(ValueError, match="is not a host key"):
            HostKey.parse(text)


def _private_key(key_type: str) -> str:
    return asyncssh.generate_private_key(key_type).export_private_key().decode()


def _greet(listener: socket.socket, greeting: bytes) -> None:
    """Accept whoever comes, and keep silent after the greeting."""
    kept = []
    try:
        while True:
            kept.append(listener.accept()[0])
            kept[-1].sendall(greeting)
    except OSError:
        for connection in kept:
            connection.close()
