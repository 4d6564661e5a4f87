"""The history of definitions in the raw bucket, beside the data that it describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from slackwater.aws.failures import translated, unless_refused
from slackwater.errors import CloudError, DefinitionError, ObjectMissing
from slackwater.project.history import DefinitionHistory
from slackwater.project.project import Project
from slackwater.sources.partitions import source_prefix
from slackwater.storage import ObjectStore


@dataclass(frozen=True, kw_only=True)
class HistoryStore:
    """Reads and writes the history of the deployed definitions."""

    store: ObjectStore
    glue: Any
    raw_bucket: str
    warehouse_database: str

    @property
    def uri(self) -> str:
        """The URI of the history."""
        return f"s3://{self.raw_bucket}/definitions.json"

    def check(self, project: Project, *, deployed: Project | None) -> None:
        """Check that the project fits all data, also of definitions that were removed, then add it to the history.

        `deployed` is the project that the new one replaces. A removed source without objects and a pipeline without a
        table are dropped from the history. Raises `DefinitionError` that names each problem, and `CloudError`.
        """
        stored = self._read()
        history = self._with_data(stored, deployed)
        if problems := history.problems(project):
            raise DefinitionError("\n".join(problems))
        # Before the deployment: if it fails halfway, some functions may already write data by the new definitions.
        if (new := history.including(project)) != stored:
            self.store.put(self.uri, new.model_dump_json().encode())

    def problems(self, project: Project, *, deployed: Project | None) -> tuple[str, ...]:
        """Return why `check` would refuse the project, and write nothing. Raises `CloudError`."""
        return self._with_data(self._read(), deployed).problems(project)

    def _with_data(self, stored: DefinitionHistory, deployed: Project | None) -> DefinitionHistory:
        """Return the history of the definitions that have data, with those of the deployed project."""
        history = stored.including(deployed) if deployed else stored
        current = deployed.sources if deployed else {}
        pipelines = {name: key for name, key in history.pipelines.items() if self._has_table(name)}
        return DefinitionHistory(
            sources={
                name: columns for name, columns in history.sources.items() if name in current or self._has_objects(name)
            },
            pipelines=pipelines,
            periods={name: period for name, period in history.periods.items() if name in pipelines},
        )

    def _read(self) -> DefinitionHistory:
        try:
            return DefinitionHistory.model_validate_json(self.store.get(self.uri))
        except ObjectMissing:
            return DefinitionHistory()
        except ValidationError as error:
            raise CloudError(
                f"{self.uri} is not readable as a history of definitions: restore its previous version in S3, because "
                "without it new definitions cannot be compared with the stored data"
            ) from error

    def _has_objects(self, source: str) -> bool:
        return next(iter(self.store.list(source_prefix(self.raw_bucket, source))), None) is not None

    def _has_table(self, pipeline: str) -> bool:
        with translated(f"read the table {self.warehouse_database}.{pipeline}"):
            key = {"DatabaseName": self.warehouse_database, "Name": pipeline}
            return unless_refused("EntityNotFoundException", lambda: self.glue.get_table(**key)) is not None
