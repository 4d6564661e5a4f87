"""What all commands share: `@command` adds options to a function that returns a document and a view of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import typer
from typer.core import TyperGroup

from slackwater import __version__
from slackwater.cli.names import use_names, with_present_names
from slackwater.cli.options import Yesterday
from slackwater.cli.output import print_json, print_note, print_text
from slackwater.client.workspace import Workspace, find_workspace
from slackwater.dev.editor_schemas import keep_schemas
from slackwater.errors import InputError

if TYPE_CHECKING:
    from slackwater.client.client import Client
    from slackwater.project.project import Project

# The exit code by which shells report an interruption: 128 and the number of SIGINT.
INTERRUPTED = 130

ProjectFolder = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project folder (sources/, pipelines/). Default: this folder; in a clone, the example if this "
        "folder has no sources/.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on standard output.")]

app = typer.Typer(
    name="slackwater",
    help="Receive data from partners, process it day by day on Spark, publish it, and run days with late data again.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help drawn by rich takes twice as long to appear
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nAn error prints a message; with --debug, anywhere, also a traceback.\n"
    "An option --aws, anywhere, chooses AWS in a project that has used a local cloud.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print_text(f"slackwater {__version__}")
        raise typer.Exit


# Without a callback, typer makes the only command of an app the app itself.
@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


class Result(NamedTuple):
    """Result of a command."""

    document: Any
    """What `--json` prints."""
    view: str | Callable[[], None] | None = None
    """What people see: a text, or a function that prints. By default it is the document."""
    exit_code: int = 0


class Session(ExitStack):
    """The project that a command works with, and the client of its deployed system. Each is opened when it is used.

    The errors of `find_workspace`, `Workspace.load_definitions` and `Client.open` are raised then.
    """

    def __init__(self, folder: Path | None, *, as_json: bool, writes: bool = False) -> None:
        """`folder` is the option `--project`, `as_json` whether the command prints its document.

        Of a command that `writes`, the cloud is shown when the client is opened.
        """
        super().__init__()
        use_names({})  # the process may have run another command
        self.folder = folder
        self.as_json = as_json
        self.writes = writes

    @cached_property
    def workspace(self) -> Workspace:
        """The folders of the project, which then has the schemas for editors."""
        workspace = find_workspace(self.folder)
        keep_schemas(workspace.project)
        return workspace

    @cached_property
    def project(self) -> Project:
        """The sources and pipelines of the project. What the command prints then has the present names of pipelines."""
        project = self.workspace.load_definitions()
        use_names(project.names)
        return project

    def yesterday(self, pipeline: str | None) -> str:
        """Return yesterday's ISO date in the timezone of a pipeline. Raises `InputError`, `UnknownName`."""
        if pipeline is None:
            raise InputError("--date: yesterday is a day in the timezone of a pipeline: name one, or give the date")
        definition = self.project.pipeline(pipeline)
        if definition.period == "hour":
            raise InputError("--date: yesterday is a day, and this pipeline has hours: give one, such as 2013-03-10T15")
        timezone = definition.timezone
        return (datetime.now(ZoneInfo(timezone)).date() - timedelta(days=1)).isoformat()

    @cached_property
    def client(self) -> Client:
        """The client. It is closed when the command has returned."""
        from slackwater.client.client import Client

        client = self.enter_context(Client.open(self.workspace, self.project))
        if self.writes:
            print_note(f"target: {client.connection.cloud}")
        return client

    def reconnect(self) -> None:
        """Let the next use open a client of its own, because what is deployed has changed."""
        vars(self).pop("client", None)
        self.writes = False  # the cloud was shown


class ListGroup(TyperGroup):
    """A group whose command is `list` if the arguments name no other: `files SOURCE` means `files list SOURCE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with `list` in front if they begin with no command."""
        named = bool(args) and args[0] in {*self.commands, "-h", "--help"}
        if not named and (args or not self.no_args_is_help):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def command_group(
    name: str, text: str, *, kind: type[TyperGroup] = TyperGroup, no_args_is_help: bool = True
) -> typer.Typer:
    """Add a group of commands to the command line, and return it. `text` is its help."""
    group = typer.Typer(name=name, help=text, cls=kind, no_args_is_help=no_args_is_help)

    # The only command of a group would otherwise be the group itself.
    @group.callback()
    def _group() -> None:
        pass

    app.add_typer(group)
    return group


def command(
    *examples: str, name: str | None = None, group: typer.Typer = app, writes: bool = False
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Add a function to the command line, with `--json`, and with `--project` where it has a parameter `session`.

    The function returns a `Result`, of which the document is printed, or the view. `examples` are at the end of its
    help, one on each line; its name is `name`, by default that of the function. A command that `writes` with the client
    shows in which cloud.
    """

    def add(function: Callable[..., Result]) -> Callable[..., Result]:
        def run(*, as_json: bool, session: Path | None = None, **arguments: Any) -> None:
            with Session(session, as_json=as_json, writes=writes) as opened:
                if isinstance(arguments.get("date"), Yesterday):
                    arguments["date"] = opened.yesterday(arguments.get("pipeline", arguments.get("run")))
                if "session" in own:
                    arguments["session"] = opened
                result = function(**arguments)
                if writes or "client" in vars(opened):  # other commands have asked no cloud
                    opened.workspace.save_local_cloud()
            if as_json or result.view is None:
                print_json(with_present_names(result.document))
            elif isinstance(result.view, str):
                print_text(result.view)
            else:
                result.view()
            raise typer.Exit(result.exit_code)

        own = dict(inspect.signature(function, eval_str=True).parameters)
        shared = {"session": (ProjectFolder, None), "as_json": (AsJson, False)}
        parameters = []
        for key in (*own, "as_json"):
            annotation, default = shared[key] if key in shared else (own[key].annotation, own[key].default)
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(key, keyword, annotation=annotation, default=default))
        # typer reads options from the signature.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = function.__doc__
        group.command(name or function.__name__.rstrip("_"), epilog=epilog(*examples))(run)
        return function

    return add


def epilog(*examples: str) -> str:
    """Return the text with examples at the end of a command's help, one on each line."""
    # In help texts, click joins the lines of a paragraph unless it begins with a line that has only `\b`.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in examples)))
