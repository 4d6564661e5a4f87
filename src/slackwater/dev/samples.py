"""The samples of a pipeline's inputs, each taken once: from files, or else from the deployed system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.dev.sample import Sample
from slackwater.dev.sample_files import source_sample, table_sample
from slackwater.errors import InputError, SlackwaterError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.period import Period

if TYPE_CHECKING:
    from slackwater.dev.deployed import Deployed


class Samples:
    """Takes a sample of each input of a pipeline, and keeps it in memory.

    Files are read again after a change of the source's definition. Rows of the deployed system stay as they are stored,
    and get the columns of the current definition.
    """

    def __init__(
        self,
        files: Mapping[str, Sequence[Path]],
        *,
        rows: int,
        connect: Callable[[Project], Deployed],
        may_be_empty: bool = False,
    ) -> None:
        """`files` are the files of inputs by name, and `rows` is the largest number of rows of each input.

        `connect` opens the deployed system, for all other inputs. After it has succeeded, it is not called again. The
        files of a source need no event of the day if they `may_be_empty`.
        """
        self._files, self._rows, self._connect, self._may_be_empty = files, rows, connect, may_be_empty
        self._taken: dict[str, tuple[tuple[str, str], Sample]] = {}
        self.deployed: Deployed | None = None
        """The deployed system, if an input comes from there."""

    def require_known_files(self, pipeline: Pipeline) -> None:
        """Raise `InputError` for files of an input that the pipeline does not have."""
        for name in self._files:
            if name not in pipeline.inputs:
                inputs = ", ".join(pipeline.inputs)
                raise InputError(f"--input: {name} is no input of {pipeline.pipeline} (its inputs: {inputs})")

    def of(self, name: str, project: Project, pipeline: Pipeline, day: Period) -> Sample:
        """Return the sample of the pipeline's input `name`: the same object as before, if nothing about it has changed.

        Raises `InputError` that names the input and the remedies if there are no rows, and for files that do not fit.
        """
        is_source = name in pipeline.sources
        definition = project.source(name).reading_digest if is_source else pipeline.tables[name].model_dump_json()
        identity = (str(day), definition)
        if name not in self._taken or self._taken[name][0] != identity:
            self._taken[name] = identity, self._take(name, project, pipeline, day)
        return self._taken[name][1]

    def _take(self, name: str, project: Project, pipeline: Pipeline, day: Period) -> Sample:
        paths = self._files.get(name)
        if paths and name in pipeline.sources:
            source = project.source(name)
            return source_sample(source, paths, day, rows=self._rows, may_be_empty=self._may_be_empty)
        if paths:
            return table_sample(name, paths, rows=self._rows, is_published=name in pipeline.published_tables)
        try:
            self.deployed = self.deployed or self._connect(project)
            return self.deployed.sample(name, project, pipeline, day)
        except SlackwaterError as error:
            raise InputError(
                f"{name}: no rows to try the pipeline on: name a file with --input {name}=FILE, or deploy the project "
                f"and store the day there: {error}"
            ) from error
