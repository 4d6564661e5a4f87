"""The entry point: one place where errors become exit codes and words."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from slackwater.cli.commands import register
from slackwater.cli.output import document, remark
from slackwater.errors import SlackwaterError

INTERRUPTED = 130

app = typer.Typer(
    name="slackwater",
    help="Receive partner data that arrives late, process a day of it on Spark, publish it, and look at it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # drawn help takes twice the time to appear
    epilog="An error prints one line; with --debug, anywhere on the line, it prints its traceback too.",
)
register(app)


@app.callback()
def _root() -> None:
    """Hold the commands together, even when there is one."""


def main() -> None:
    """Run the command line and exit as it says."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; return the exit code: 0 on success, 2 for a usage or input error, 1 otherwise.

    With `--json` an error is a document too: `{"error": {"kind", "message"}}`.
    """
    words = [word for word in arguments if word != "--debug"]
    debug, as_json = len(words) < len(arguments), "--json" in words
    try:
        code = app(words, prog_name="slackwater", standalone_mode=False)
        sys.stdout.flush()
    except SlackwaterError as error:
        return _fail(error, type(error).__name__, str(error), error.exit_code, debug=debug, as_json=as_json)
    except typer.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        # Who reads us has had enough; what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except typer.TyperException as error:
        return _fail(error, "UsageError", _usage(error), error.exit_code, debug=debug, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last line of defence: said in words, and never with exit code 0
        message = f"unexpected: {type(error).__name__}: {error} (run again with --debug)"
        return _fail(error, "Unexpected", message, 1, debug=debug, as_json=as_json)
    if code == INTERRUPTED:
        remark("interrupted", style="yellow")
    return code if isinstance(code, int) else 0


def _usage(error: typer.TyperException) -> str:
    context: typer.Context | None = getattr(error, "ctx", None)
    where = context.command_path if context else app.info.name
    return f"{error.format_message() or 'which command?'} (see: {where} --help)"


def _fail(error: Exception, kind: str, message: str, code: int, *, debug: bool, as_json: bool) -> int:
    if debug:
        sys.excepthook(type(error), error, error.__traceback__)
    if as_json:
        document({"error": {"kind": kind, "message": message}})
    else:
        remark(f"error: {message}", style="red")
    return code
