"""`slackwater destroy` prints what it keeps before it asks, and deletes nothing without the right answer."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from slackwater.cli.main import run
from tests.example_project import PROJECT
from tests.fakes_cli import Terminal
from tests.fakes_stacks import BUCKET, QUEUE, ROLE, Aws

pytestmark = pytest.mark.unit

STORAGE = {"Raw": (BUCKET, "Retain"), "Events": (QUEUE, "RetainExceptOnCreate"), "Scratch": (BUCKET, "Delete")}
RECEIVER = {"Role": (ROLE, ""), "Other": (ROLE, "")}
LISTING = [
    ["slackwater", "in", "http://127.0.0.1:9:", "2", "stacks"],
    *(["kept", "name", "stack"], [BUCKET, "raw", "slackwater-storage"], [QUEUE, "events", "slackwater-storage"]),
    *(["deleted", "number"], [ROLE, "2"], [BUCKET, "1"]),
]
STACKS = ["slackwater-receiver", "slackwater-storage"]
"""In the order in which they are deleted."""


class Account(Aws):
    """An account that keeps what was printed before its first stack was deleted."""

    def __init__(self, capsys: pytest.CaptureFixture[str], **stacks: dict[str, tuple[str, str]]) -> None:
        super().__init__(**stacks)
        self._capsys = capsys
        self.printed = ""

    def delete_stack(self, *, StackName: str) -> None:  # noqa: N803 - boto3's name
        self.printed += self._capsys.readouterr().out
        super().delete_stack(StackName=StackName)


class Answer(Terminal):
    """A terminal at which a person types a line, and which keeps what was printed before."""

    def __init__(self, line: str, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__()
        self._line, self._capsys = line, capsys
        self.printed = ""

    def readline(self, *_: Any) -> str:
        self.printed += self._capsys.readouterr().out
        return f"{self._line}\n"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Account:
    account = Account(capsys, **{"slackwater-storage": STORAGE, "slackwater-receiver": RECEIVER})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SLACKWATER_PREFIX", "slackwater")
    monkeypatch.setattr("slackwater.deploy.deploy.client", lambda _: account)
    monkeypatch.setattr("slackwater.aws.deletion._PAUSE", 0)
    return account


def words(printed: str) -> list[list[str]]:
    """The words of each line, without empty lines and rules of tables."""
    return [line.split() for line in printed.splitlines() if line.strip(" -─")]


def test_with_another_answer_nothing_is_deleted_and_what_is_kept_was_printed(account, monkeypatch, capsys):
    answer = Answer("slackwater-dev", capsys)
    monkeypatch.setattr("sys.stdin", answer)
    assert run(["destroy", *PROJECT]) == 2
    assert words(answer.printed) == LISTING
    assert "nothing was deleted: the answer was not slackwater" in capsys.readouterr().err
    assert account.deleted == []


def test_with_the_prefix_as_answer_the_stacks_are_deleted_after_it(account, monkeypatch, capsys):
    answer = Answer(" slackwater ", capsys)
    monkeypatch.setattr("sys.stdin", answer)
    assert run(["destroy", *PROJECT]) == 0
    assert words(answer.printed) == LISTING
    assert account.deleted == STACKS
    assert capsys.readouterr().out.splitlines()[-1] == "deleted: 2 stacks; kept: 2 resources"


def test_without_a_question_what_is_kept_is_printed_before_the_first_deletion(account):
    assert run(["destroy", "--yes", *PROJECT]) == 0
    assert words(account.printed) == LISTING
    assert account.deleted == STACKS


@pytest.mark.parametrize(("options", "stdin"), [([], io.StringIO), (["--json"], Terminal)])
def test_where_the_command_cannot_ask_nothing_is_deleted_without_yes(account, monkeypatch, printed_by, options, stdin):
    monkeypatch.setattr("sys.stdin", stdin("slackwater\n"))
    printed = printed_by("destroy", *options, *PROJECT, code=2)
    assert "--yes is missing" in printed.out + printed.err
    assert account.deleted == []


def test_a_json_document_lists_what_was_deleted_and_what_is_kept(account, document_of):
    document = document_of("destroy", "--yes", *PROJECT)
    assert document["deleted"] == STACKS
    assert [(item["type"], item["name"]) for item in document["kept"]] == [(BUCKET, "raw"), (QUEUE, "events")]


def test_what_would_be_lost_is_printed_after_the_listing_and_nobody_is_asked(account, monkeypatch, capsys, printed_by):
    answer = Answer("slackwater", capsys)
    monkeypatch.setattr("sys.stdin", answer)
    account.objects = {"scratch": ["a"]}
    printed = printed_by("destroy", *PROJECT, code=1)
    assert words(printed.out) == LISTING
    assert "nothing was deleted:\n  bucket scratch is not empty" in printed.err
    assert answer.printed == ""
    assert account.deleted == []


def test_a_prefix_with_no_stack_is_an_error(account, monkeypatch, printed_by):
    monkeypatch.setenv("SLACKWATER_PREFIX", "another")
    assert "nothing is deployed with the prefix 'another'" in printed_by("destroy", "--yes", *PROJECT, code=2).err
    assert account.deleted == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"account": "222222222222"}, "account: this deployment belongs to 222222222222, and the credentials are for"),
        ({"region": "us-east-1"}, "region: this deployment belongs to us-east-1, and the credentials are for"),
    ],
)
def test_credentials_for_another_account_or_region_delete_nothing(
    account, monkeypatch, printed_by, tmp_path, *, settings, message
):
    monkeypatch.setenv("SLACKWATER_ENVIRONMENT", "dev")
    other = {"account": "111111111111", "region": "eu-west-1"}
    context = {"slackwater:environments": {"dev": settings, "prod": other}}
    (tmp_path / "cdk.json").write_text(json.dumps({"context": context}))
    printed = printed_by("destroy", "--yes", "--project", str(tmp_path), code=2)
    assert message in printed.err
    assert "slackwater:environments, in cdk.json" in printed.err
    assert (account.deleted, printed.out) == ([], "")
    # The same credentials are those of another environment.
    assert run(["destroy", "--yes", "--environment", "prod", "--project", str(tmp_path)]) == 0
    assert account.deleted == STACKS
