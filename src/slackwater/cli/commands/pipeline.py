"""`slackwater pipeline`: check, draw and compile the definitions of pipelines, without a cloud."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import print_json, print_text
from slackwater.client.workspace import find_workspace, project_of
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.validation.problems import Problem

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The YAML file of the pipeline.", show_default=False)
]

group = typer.Typer(name="pipeline", help="Definitions of pipelines.", no_args_is_help=True)

_INVALID = 2


def register(app: typer.Typer) -> None:
    """Add the group `pipeline`."""
    app.add_typer(group)


@group.command(
    epilog=examples(
        "slackwater pipeline validate",
        "slackwater pipeline validate pipelines/daily.yaml",
        "slackwater pipeline validate --json",
    )
)
def validate(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The YAML file of one pipeline. Default: all sources and pipelines of the project.",
            show_default=False,
        ),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check a project, and print all problems of all its files: file, line, column, and what is wrong.

    Nothing runs. The exit code is 0 without problems and 2 with some.
    """
    from slackwater.validation.check_project import check_pipeline, check_project

    if file is not None:
        problems = relative_problems(check_pipeline(project_of(file, project), file)[1])
        valid = f"{file}: valid"
    else:
        checked = check_project(find_workspace(project).project)
        problems = relative_problems(checked.problems)
        numbers = (counted(len(checked.sources), "source"), counted(len(checked.pipelines), "pipeline"))
        valid = f"valid: {' and '.join(numbers)}"
    if as_json:
        print_json({"problems": [dataclasses.asdict(problem) for problem in problems]})
    elif problems:
        print_text("\n".join(f"{problem.position}  {problem.description}" for problem in problems))
    else:
        print_text(valid, style="green")
    raise typer.Exit(_INVALID if problems else 0)


@group.command(epilog=examples("slackwater pipeline schema > pipeline.schema.json"))
def schema() -> None:
    """Print the JSON Schema of pipelines, with the parameters of all steps.

    Editors check YAML files with it, and complete them.
    """
    from slackwater.validation.pipeline_schema import pipeline_schema

    print_json(pipeline_schema())


@group.command(
    epilog=examples(
        "slackwater pipeline graph pipelines/daily.yaml",
        "slackwater pipeline graph pipelines/daily.yaml --svg > daily.svg",
    )
)
def graph(
    file: PipelineFile,
    svg: Annotated[bool, typer.Option("--svg", help="Draw an SVG image instead of a Mermaid flowchart.")] = False,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Draw a pipeline: its inputs and steps, the stages that run as one Spark job, and the exchanges between them.

    Stages that do not read each other run in parallel.
    """
    from slackwater.pipeline import drawing
    from slackwater.pipeline.graph import layers, stages
    from slackwater.project.project import load_pipeline

    pipeline = load_pipeline(file, project_of(file, project))
    if as_json:
        names = [[stage.name for stage in layer] for layer in layers(stages(pipeline))]
        print_json({"layers": names, "mermaid": drawing.mermaid(pipeline), "svg": drawing.svg(pipeline)})
    else:
        print_text((drawing.svg if svg else drawing.mermaid)(pipeline).rstrip("\n"))


@group.command("compile", epilog=examples("slackwater pipeline compile pipelines/daily.yaml"))
def compile_(
    file: PipelineFile,
    project: ProjectFolder = None,
    as_json: AsJson = False,  # noqa: ARG001 - every command accepts it; this one always prints JSON
) -> None:
    """Print the state machine of a pipeline, in Amazon States Language.

    The deployment replaces placeholders such as `${ApplicationId}`.
    """
    import json

    from slackwater.pipeline.compile import compile_machine
    from slackwater.project.installation import deployed_files
    from slackwater.project.project import load_pipeline

    pipeline = load_pipeline(file, project_of(file, project))
    frame = json.loads((deployed_files() / "step_functions" / "pipeline.asl.json").read_text(encoding="utf-8"))
    print_json(compile_machine(pipeline, frame))


def relative_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems with paths that are relative to the current folder, if the files are in it."""
    current = Path.cwd()
    return [
        dataclasses.replace(problem, file=problem.file.relative_to(current))
        if problem.file.is_relative_to(current)
        else problem
        for problem in problems
    ]
