"""The whole command line: exit codes, errors as plain lines and as JSON documents, help."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest
import typer

import slackwater.cli.main as main_module
from slackwater import __version__
from slackwater.cli.main import run
from slackwater.client.workspace import AWS_VARIABLE
from slackwater.errors import CloudError, InputError
from tests.example_project import PROJECT

pytestmark = pytest.mark.unit

COMMANDS = [
    "local up", "local down", "local status", "local env", "plan", "deploy", "destroy", "doctor", "source validate",
    "pipeline validate", "dev", "test", "token create", "token list", "token revoke", "push", "pull", "files list",
    "files give-up", "counts", "state", "verdict", "sideline list", "sideline show", "sideline redrive",
    "buffer status", "buffer redrive", "run", "stop", "runs", "refs", "history", "rollback", "lineage", "why",
    "late list", "late release", "late keep", "late suggest", "monitor", "diff", "cost", "logs", "query",
]  # fmt: skip
RANGE = ["run", "daily_delays", "--from", "2013-03-08", "--to", "2013-03-10"]
WITHOUT_PROJECT = ["init", "airflow up", "docs serve", "step list", "step show", "step run"]


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch, tmp_path):
    """No cloud listens at this endpoint: a command that connects to it fails."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def raising(monkeypatch):
    """Replace all commands by one that raises the error of the test."""

    def raising(error):
        other = typer.Typer()

        @other.command()
        def fail(as_json: bool = typer.Option(False, "--json")) -> None:
            raise error

        monkeypatch.setattr(main_module, "_command", lambda: typer.main.get_command(other))

    return raising


def test_every_command_is_listed_here(capsys):
    run(["--help"])
    names = {
        line.split()[0]
        for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
        if line[2:3].strip()
    }
    assert names - {"An"} == {command.split()[0] for command in [*COMMANDS, *WITHOUT_PROJECT]}


def test_the_version_is_printed(printed_by):
    assert printed_by("--version").out == f"slackwater {__version__}\n"


def test_a_shell_completes_commands():
    variables = {"_SLACKWATER_COMPLETE": "complete_bash", "COMP_WORDS": "slackwater mon", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "slackwater.cli"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["monitor"]


@pytest.mark.parametrize("words", [[], ["run"], ["late"], ["late", "keep"]])
def test_help_has_a_short_option(printed_by, words):
    assert printed_by(*words, "-h").out == printed_by(*words, "--help").out


def test_aws_is_chosen_anywhere_on_the_command_line(printed_by, monkeypatch):
    monkeypatch.setenv(AWS_VARIABLE, "")
    printed_by("runs", "--aws", "--help")
    assert os.environ[AWS_VARIABLE] == "1"


@pytest.mark.parametrize("command", [*COMMANDS, *WITHOUT_PROJECT])
def test_help_of_every_command_has_examples_that_can_be_parsed_and_accepts_json_and_project(printed_by, command):
    shown = printed_by(*command.split(), "--help").out
    assert command in WITHOUT_PROJECT or ("--json" in shown and "--project DIR" in shown)
    group, examples = main_module._command(), shown.partition("Examples:\n")[2]
    assert f"slackwater {command}" in examples
    for line in examples.splitlines():
        arguments = shlex.split(line.partition("slackwater ")[2])
        context = group.make_context("slackwater", arguments)
        assert context is not None
        chosen = group.commands[arguments[0]]
        rest = arguments[1:]
        if hasattr(chosen, "commands"):
            # `files SOURCE` leaves the name of the command out.
            given = arguments[1] in chosen.commands
            chosen, rest = chosen.commands[arguments[1] if given else "list"], arguments[2 if given else 1 :]
        assert chosen.make_context(arguments[0], rest).params


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Usage"),
        (["--project", "."], "No such option: --project"),
        (["local"], "Usage"),
        (["nothing"], "No such command 'nothing'"),
        (["run"], "PIPELINE: name one pipeline, or several with --select"),
        (["run", "daily_delays"], "--date is missing: give one day with --date, or a range of days"),
        (["run", "daily_delays", "--from", "2013-03-08"], "--to is missing: a range of days has both ends"),
        (["run", "daily_delays", "--to", "2013-03-08"], "--from is missing"),
        (["run", "daily_delays", "--date", "2013-03-08", "--parallel", "2"], "--parallel needs a range of days"),
        (["run", "daily_delays", "--date", "2013-03-08", "--stale"], "--stale needs a range of days: --from and --to"),
        ([*RANGE, "--date", "2013-03-08"], "--date and --from, --to exclude each other: run one day, or a range"),
        ([*RANGE, "--force"], "--force and --from, --to exclude each other"),
        ([*RANGE, "--wait"], "--wait and --from, --to exclude each other"),
        (
            ["run", "--select", "a+", "--date", "2013-03-08", "--wait"],
            "--select and --wait exclude each other: run one",
        ),
        (["run", "new.yaml", "--date", "2013-03-08", "--wait"], "--wait needs the name of a deployed pipeline"),
        ([*RANGE, "--parallel", "0"], "'--parallel': Input should be greater than or equal to 1"),
        ([*RANGE, "--parallel", "41"], "'--parallel': Input should be less than or equal to 40"),
        ([*RANGE, "--from", "2013-3-1"], "--from: '2013-3-1' is not a date such as 2013-03-08"),
        ([*RANGE, "--to", "2013-02-28"], "--from: 2013-03-08 is after --to, 2013-02-28: exchange them"),
        ([*RANGE, "--to", "2014-03-09"], "--to: 2013-03-08 to 2014-03-09 are 367 days, and a backfill has at most 366"),
        ([*RANGE, "--from", "9999-01-01", "--to", "9999-12-31"], "--to: 9999-12-31 has not begun in America/New_York"),
        (["run", "daily_delays", "--date"], "requires an argument"),
        (["query", "SELECT 1", "--nonsense"], "No such option: --nonsense"),
        (["local", "up", "--port", "0"], "Invalid value for '--port'"),
        (["local", "up", "--port", "a"], "--port"),
        (["token", "create", "acme"], "Missing option '--source'"),
        (["run", "daily_delays", "--date", "2013-02-30"], "--date: '2013-02-30' is not a date such as 2013-03-08"),
        (["run", "daily_delays", "--date", "20130310"], "--date: '20130310' is not a date such as 2013-03-08"),
        (["run", "daily_delays", "--date", "2013-W10-7"], "--date: '2013-W10-7' is not a date"),
        (["pull", "flights", "--as-of", "today"], "--as-of: 'today' is not a date"),
        (["run", "daily_delays", "--date", "2013-03-10.."], "--date: '' is not a date such as 2013-03-08"),
        (["run", "daily_delays", "--date", "2013-03-10..32"], "--date: '2013-03-32' is not a date such as 2013-03-08"),
        (["run", "daily_delays", "--date", "2013-03-10..09"], "--from: 2013-03-10 is after --to, 2013-03-09: exchange"),
        ([*RANGE, "--date", "2013-03-08..09"], "--date and --from, --to exclude each other: run one day, or a range"),
        (["diff", "daily_delays", "--date", "2013-03-08..09"], "--date: '2013-03-08..09' is not a date"),
        (["runs", "--date", "yesterday"], "--date: yesterday is a day in the timezone of a pipeline: name one, or"),
        (["cost", "--from", "yesterday"], "--from: 'yesterday' is not a date such as 2013-03-08"),
        (
            ["runs", "daily_delays", "--timeline", "--date", "2013-03-08", "--limit", "1"],
            "--limit: it is for a list",
        ),
        (["runs", "daily_delays", "--state", "lost"], "--state"),
        (["cost", "--from", ""], "--from: '' is not a date such as 2013-03-08"),
        (["deploy", "--set", "log_level"], "--set: 'log_level' is not of the form NAME=VALUE"),
        (["deploy", "--set", "prefix=mine"], "--set prefix=mine: the other commands would not find this deployment"),
        (["deploy", "--set", "environment=dev"], "use --environment dev, and set the environment variable"),
        (["deploy", "--environment", "production"], "environment: 'production' is none of dev, staging, prod"),
        (["run", "nothing", "--date", "2013-03-08"], "no pipeline 'nothing'"),
        (["runs", "nothing"], "no pipeline 'nothing'"),
        (["logs", "nothing", "--date", "2013-03-08"], "no pipeline 'nothing'"),
        (["pull", "nothing"], "no source 'nothing'"),
        (["pull", "weather"], "source 'weather' is not pulled"),
        (["push", "flights", "file"], "source 'flights' is not pushed"),
        (["push", "weather", "/no/such/file"], "cannot read /no/such/file"),
        (["token", "create", "acme", "--source", "nothing"], "no source 'nothing'"),
        (["runs", "--project", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_wrong_input_exits_2_and_is_named(printed_by, arguments, expected):
    project = [] if len(arguments) < 2 or arguments[-1] == "--date" or "--project" in arguments else [*PROJECT]
    captured = printed_by(*arguments, *project, code=2)
    assert expected in captured.err + captured.out
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "error_type", "expected"),
    [
        (["nothing", "--json"], "UsageError", "No such command"),
        (["run", "--json"], "InputError", "PIPELINE"),
        (["run", "daily_delays", "--json"], "InputError", "--date"),
        (["run", "nothing", "--date", "2013-03-08", "--json"], "UnknownName", "nothing"),
        (["push", "weather", "/no/such/file", "--json"], "InputError", "/no/such/file"),
        (["runs", "--json", "--project", "/no/such/folder"], "DefinitionError", "/no/such/folder"),
    ],
)
def test_with_json_an_error_is_the_only_document_on_standard_output(printed_by, arguments, error_type, expected):
    captured = printed_by(*arguments, code=2)
    error = json.loads(captured.out)["error"]
    assert error["type"] == error_type
    assert expected in error["message"]
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(("error", "code"), [(InputError("wrong"), 2), (CloudError("wrong"), 1)])
def test_the_type_of_the_error_decides_the_exit_code(printed_by, raising, error, code):
    raising(error)
    assert printed_by(code=code).err == "error: wrong\n"


def test_an_unexpected_error_names_the_debug_option(printed_by, document_of, raising):
    raising(KeyError("lost"))
    assert printed_by(code=1).err == "error: unexpected: KeyError: 'lost' (run again with --debug)\n"
    assert document_of(code=1)["error"]["type"] == "Unexpected"


@pytest.mark.parametrize(("module", "extra"), [("aws_cdk.aws_s3", "infra"), ("py4j", "local")])
def test_a_package_that_is_not_installed_is_named_with_its_extra(printed_by, document_of, raising, module, extra):
    raising(ModuleNotFoundError(f"No module named {module!r}", name=module))
    package = module.partition(".")[0]
    message = f"{package} is not installed: install Slackwater with the extra `{extra}`"
    assert printed_by(code=1).err == f"error: {message}\n"
    assert document_of(code=1) == {"error": {"type": "MissingPackage", "message": message}}


def test_a_module_that_no_extra_installs_is_an_unexpected_error(printed_by, raising):
    raising(ModuleNotFoundError("No module named 'slackwater.lost'", name="slackwater.lost"))
    assert "unexpected: ModuleNotFoundError" in printed_by(code=1).err


def test_without_the_packages_of_the_command_line_the_program_names_their_extra(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('No module named typer', name='typer')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "slackwater.cli", "runs"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: typer is not installed: install Slackwater with the extra `cli`\n"


def test_debug_shows_the_traceback_too(printed_by, raising):
    raising(CloudError("wrong"))
    shown = printed_by("--debug", code=1).err
    assert "Traceback (most recent call last)" in shown
    assert shown.endswith("error: wrong\n")


def test_an_interruption_ends_with_130(printed_by, raising):
    raising(KeyboardInterrupt())
    assert printed_by(code=130).err == "interrupted\n"


def test_a_closed_pipe_prints_no_error(capfd, raising):
    raising(BrokenPipeError(32, "Broken pipe"))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 1
    assert capfd.readouterr().err == ""


def test_a_wrong_key_in_the_project_names_file_and_field(document_of, tmp_path):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "weather.yaml").write_text(
        "source: weather\ntimestamp: {field: at}\nfilds: {at: timestamp}\npush: {}\n"
    )
    message = document_of("runs", code=2)["error"]["message"]
    assert "weather.yaml" in message
    assert "filds" in message
