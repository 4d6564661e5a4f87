"""`slackwater pipeline`: check, draw and compile the definitions of pipelines, without a cloud."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command, command_group, epilog
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_json, print_text
from slackwater.client.workspace import project_of
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.validation.yaml_file import FileProblem

PipelineFile = Annotated[Path, argument("FILE", "The YAML file of the pipeline.")]

group = command_group("pipeline", "Definitions of pipelines.")

_INVALID = 2


@command(
    "slackwater pipeline validate",
    "slackwater pipeline validate pipelines/daily.yaml",
    "slackwater pipeline validate --json",
    group=group,
)
def validate(
    file: Annotated[
        Path | None,
        argument("FILE", "The YAML file of one pipeline. Default: all sources and pipelines of the project."),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Check a project, and print all problems of all its files: file, line, column, and what is wrong.

    Nothing runs, and SQL is checked without Spark: `slackwater dev` lets Spark plan it. The exit code is 0 without
    problems and 2 with some.
    """
    from slackwater.validation.check_project import check_pipeline, check_project

    if file is not None:
        problems = relative_problems(check_pipeline(project_of(file, session.folder), file)[1])
        valid = f"{file}: valid"
    else:
        checked = check_project(session.workspace.project)
        problems = relative_problems(checked.problems)
        numbers = (counted(len(checked.sources), "source"), counted(len(checked.pipelines), "pipeline"))
        valid = f"valid: {' and '.join(numbers)}"
    lines = "\n".join(f"{problem.position}  {problem.description}" for problem in problems)
    return Result(
        {"problems": [dataclasses.asdict(problem) for problem in problems]},
        lines or partial(print_text, valid, style="green"),
        exit_code=_INVALID if problems else 0,
    )


@group.command(epilog=epilog("slackwater pipeline schema > pipeline.schema.json"))
def schema() -> None:
    """Print the JSON Schema of pipelines, with the parameters of all steps.

    Editors check YAML files with it, and complete them.
    """
    from slackwater.validation.pipeline_schema import pipeline_schema

    print_json(pipeline_schema())


@command(
    "slackwater pipeline graph pipelines/daily.yaml",
    "slackwater pipeline graph pipelines/daily.yaml --svg > daily.svg",
    group=group,
)
def graph(
    file: PipelineFile,
    svg: Annotated[bool, option("--svg", text="Draw an SVG image instead of a Mermaid flowchart.")] = False,
    *,
    session: Session,
) -> Result:
    """Draw a pipeline: its inputs and steps, the stages that run as one Spark job, and the exchanges between them.

    Stages that do not read each other run in parallel.
    """
    from slackwater.pipeline import drawing
    from slackwater.pipeline.graph import layers, stages
    from slackwater.project.project import load_pipeline

    pipeline = load_pipeline(file, project_of(file, session.folder))
    names = [[stage.name for stage in layer] for layer in layers(stages(pipeline))]
    mermaid, drawn = drawing.mermaid(pipeline), drawing.svg(pipeline)
    return Result({"layers": names, "mermaid": mermaid, "svg": drawn}, (drawn if svg else mermaid).rstrip("\n"))


@command("slackwater pipeline compile pipelines/daily.yaml", name="compile", group=group)
def compile_(file: PipelineFile, *, session: Session) -> Result:
    """Print the state machine of a pipeline, in Amazon States Language.

    The deployment replaces placeholders such as `${ApplicationId}`.
    """
    from slackwater.pipeline.compile import compile_machine
    from slackwater.project.installation import pipeline_frame
    from slackwater.project.project import load_pipeline

    return Result(compile_machine(load_pipeline(file, project_of(file, session.folder)), pipeline_frame()))


def relative_problems(problems: Sequence[FileProblem]) -> list[FileProblem]:
    """Return the problems with paths that are relative to the current folder, if the files are in it."""
    current = Path.cwd()
    return [
        dataclasses.replace(problem, file=problem.file.relative_to(current))
        if problem.file.is_relative_to(current)
        else problem
        for problem in problems
    ]
