"""The columns of the rows that a pipeline publishes, as far as they are known before anything runs."""

from __future__ import annotations

from slackwater.errors import SlackwaterError
from slackwater.project.project import Project
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.registry import parameters_of, step_of


def published_columns(project: Project, pipeline: str) -> Columns | None:
    """Return the columns of a pipeline's rows, without the `date` that publishing adds; None if they are not certain.

    Raises `UnknownName` for a pipeline that the project lacks.
    """
    definition = project.pipeline(pipeline)
    sources: dict[str, Columns | None] = {name: tuple(project.source(name).columns) for name in definition.sources}
    # A published table may also have columns of earlier definitions.
    known: dict[str, Columns | None] = {**dict.fromkeys(definition.tables), **sources}

    def columns_of(name: str) -> Columns | None:
        if name not in known:
            use, place = definition.steps[name], f"steps.{name}"
            inputs = InputColumns({read: columns_of(read) for read in use.depends_on}, sources=sources)
            columns = step_of(place, use).columns(inputs, parameters_of(place, use))
            known[name] = None if inputs.problems else columns
        return known[name]

    try:
        return columns_of(definition.publish.step)
    except SlackwaterError:  # a command that needs no valid steps has read the definition
        return None
