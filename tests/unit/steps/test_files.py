"""Paths of the project's files: what they may be, and which objects they mean."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from slackwater.errors import InputError
from slackwater.steps.files import ProjectFiles, check_output, check_path, check_pattern
from tests.fakes_spark import FolderStore

pytestmark = pytest.mark.unit

PREFIX = "s3://bucket/files/"
DAY = date(2013, 3, 10)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def files(store: FolderStore) -> ProjectFiles:
    return ProjectFiles(PREFIX, lambda: store)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../other/a.csv",
        "a/../../b.csv",
        "a/..",
        "a/./b.csv",
        "a//b.csv",
        "/etc/passwd",
        "//host/share",
        "s3://other/a.csv",
        "s3:/other/a.csv",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "C:/a.csv",
        "C:\\a.csv",
        "..\\a.csv",
        "~/a.csv",
        "%2e%2e/a.csv",
        "a/%2E%2E/b.csv",
        "a%2f..%2fb.csv",
        "a%00.csv",
        "\uff0e\uff0e/a.csv",  # full-width dots
        "\u2025/a.csv",  # a two dot leader
        "a\uff0fb.csv\uff1as",  # a full-width colon
        "a\x00.csv",
        "a\n.csv",
        "a\u202egpj.csv",  # writes from right to left
        "a\u200b.csv",  # a space without width
        "a\ud800.csv",  # half of a surrogate pair
        "a?.csv",
        "[a].csv",
        "{minute}.csv",
        "{date.csv",
        "{date:%Y}.csv",
        "a/{../}.csv",
        "a" * 700,
    ],
)
def test_a_path_that_may_lead_out_of_the_prefix_is_refused(path: str) -> None:
    for check in (check_path, check_pattern, check_output):
        with pytest.raises(ValueError, match=r"not a path below the project's files|more than 640 bytes"):
            check(path)


@pytest.mark.parametrize(
    "path", ["a.csv", "exports/delays/{date}.csv", "exports/{date}/", "Müller/年.csv", "a b.csv", "a=1/..b", "a/.b"]
)
def test_a_relative_path_is_accepted(path: str) -> None:
    assert check_path(path) == check_pattern(path) == path


def test_only_paths_to_read_are_patterns() -> None:
    assert check_pattern("exports/*.csv") == "exports/*.csv"
    with pytest.raises(ValueError, match="has a \\*"):
        check_path("exports/*.csv")


def test_the_date_is_that_of_the_run(files: ProjectFiles) -> None:
    assert files.uri("exports/{date}.csv", DAY) == "s3://bucket/files/exports/2013-03-10.csv"
    assert files.uri("exports/all.csv", None) == "s3://bucket/files/exports/all.csv"
    with pytest.raises(InputError, match="only a run of a pipeline has"):
        files.uri("exports/{date}.csv", None)


def test_the_hour_is_that_of_the_run_and_only_written_paths_have_one(files: ProjectFiles) -> None:
    path = check_output("exports/{date}/{hour}-{input}.csv")
    assert files.uri(path, DAY, 5) == "s3://bucket/files/exports/2013-03-10/05-{input}.csv"
    with pytest.raises(InputError, match="only a run of an hourly pipeline has"):
        files.uri(path, DAY)
    for check in (check_path, check_pattern):
        with pytest.raises(ValueError, match=r"\{date\} is the only placeholder"):
            check("exports/{date}/{hour}.csv")
    with pytest.raises(ValueError, match=r"\{date\}, \{hour\} and \{input\} are the only placeholders"):
        check_output("exports/{minute}.csv")


def test_a_path_means_an_object_a_folder_or_a_pattern(files: ProjectFiles, store: FolderStore) -> None:
    names = ["a.csv", "a.csv.old", "x/2013-03-10.csv", "x/2013-03-11.csv", "x/_SUCCESS", "x/.hidden", "x/deep/b.csv"]
    for name in names:
        store.put(PREFIX + name, b"")
    store.put("s3://bucket/files-of-others/c.csv", b"")

    def found(path: str) -> list[str]:
        return [files.name(item.uri) for item in files.find(path, DAY)]

    assert found("a.csv") == ["a.csv"]
    assert found("x/{date}.csv") == ["x/2013-03-10.csv"]
    assert found("x/") == ["x/2013-03-10.csv", "x/2013-03-11.csv"]
    assert found("x/*.csv") == ["x/2013-03-10.csv", "x/2013-03-11.csv"]
    assert found("*/*/*.csv") == ["x/deep/b.csv"]
    assert found("*.csv") == ["a.csv"]


@pytest.mark.parametrize("path", ["b.csv", "a", "none/", "x/*.json", "a.cs*v2", "a+csv"])
def test_no_file_is_an_error_that_names_the_path(files: ProjectFiles, store: FolderStore, path: str) -> None:
    store.put(f"{PREFIX}a.csv", b"")
    with pytest.raises(InputError, match=r"no file .* below s3://bucket/files/"):
        files.find(path, DAY)
