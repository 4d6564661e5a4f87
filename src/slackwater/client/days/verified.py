"""Read the versions of a day's data, and compare each with what was recorded when it was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.files import read_batches
from slackwater.arrow.messages import decode_schema
from slackwater.arrow.verification import dataset_problems
from slackwater.client.days.verified_inputs import InputVerifier
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.formatting import counted
from slackwater.project.project import Project
from slackwater.runs.outputs import Version, VersionState, VersionType
from slackwater.runs.period import is_hour

if TYPE_CHECKING:
    from slackwater.aws.warehouse import Warehouse
    from slackwater.storage import ObjectStore


class VerifiedVersion(NamedTuple):
    """A version that was read."""

    version: Version
    problems: tuple[str, ...] | None
    """What differs from the records, one sentence each. None for a version that was not read, because retention has
    removed it."""


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """Reads versions of the days of one pipeline."""

    project: Project
    pipeline: str
    date: str
    published: int
    """The attempt whose version is published now; 0 without one."""
    store: ObjectStore
    warehouse: Warehouse

    def verify(self, version: Version) -> VerifiedVersion:
        """Read a version, and compare rows, schema and checksums. Raises `AccessDenied`, `CloudError`."""
        if version.state is VersionState.REMOVED:
            return VerifiedVersion(version, None)
        if version.state is VersionState.MISSING:
            return VerifiedVersion(version, (f"{version.uri} does not exist any more",))
        if version.type is VersionType.INPUT:
            inputs = InputVerifier(project=self.project, store=self.store, warehouse=self.warehouse)
            return VerifiedVersion(version, tuple(inputs.problems(version)))
        if version.reference:
            manifest = load_manifest(version.uri, store=self.store)
            return VerifiedVersion(version, tuple(dataset_problems(version.reference, manifest, store=self.store)))
        try:
            return VerifiedVersion(version, tuple(self._published_problems(version)))
        except ObjectMissing as error:
            # Retention removes versions that another one has replaced, and of hours all.
            is_removed = version.attempt != self.published or is_hour(self.date)
            return VerifiedVersion(version, None if is_removed else (str(error),))

    def _published_problems(self, version: Version) -> Iterator[str]:
        """Yield what is wrong with a published version: it has the rows and the columns of the last stage."""
        tag = version.uri.rpartition("'")[0].rpartition("'")[2]
        table = self.warehouse.version(self.pipeline, date=self.date, tag=tag)
        if len(table) != version.rows:
            yield f"the version {tag} has {counted(len(table), 'row')}; the record of the run says {version.rows}"
        (uri,) = version.parents
        try:
            manifest = load_manifest(uri, store=self.store)
        except ObjectMissing:
            return  # the columns are in the manifest
        schema = decode_schema(manifest.arrow_schema)
        missing = sorted(set(schema.names) - set(table.column_names))
        if missing:
            yield f"the version {tag} lacks the columns {', '.join(missing)}"
            return
        try:
            published = table.select(schema.names).cast(schema)
        except pa.ArrowException as error:
            yield f"the columns of the version {tag} have other types than its stage has written: {error}"
            return
        try:
            batches = [
                batch for file in manifest.files for batch in read_batches(file, schema=schema, store=self.store)
            ]
        except (ObjectMissing, ObjectInvalid):
            return  # removed by retention, or damaged, which the version of the stage says
        different = _different_rows(published, pa.Table.from_batches(batches, schema))
        if different:
            yield f"{counted(different, 'row')} of the version {tag} differ from those that its stage has written"


def _different_rows(one: pa.Table, other: pa.Table) -> int:
    """Return how many rows only one of two tables with the same columns has."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("one", one)
        connection.register("other", other)
        query = "SELECT count(*) FROM ((FROM one EXCEPT ALL FROM other) UNION ALL (FROM other EXCEPT ALL FROM one))"
        found = connection.execute(query).fetchone()
    return int(found[0]) if found else 0
