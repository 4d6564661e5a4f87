"""Stages of large days whose inputs have only gained objects since an earlier attempt (docs/decisions/0025).

Such a stage may compute the added objects alone, and merge their groups with the rows of the earlier attempt. The run
stores where these are when it starts. Whether the steps of the stage allow it, its Spark job decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import structs
from pydantic import TypeAdapter

from slackwater.arrow.dataset import find_reference
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.model import Record
from slackwater.pipeline.graph import stages
from slackwater.project.project import Project
from slackwater.runs.finished_stages import is_readable
from slackwater.runs.inputs.manifest import InputManifest, read_manifest
from slackwater.runs.record import Run, RunRecord
from slackwater.storage import ObjectStore

LARGE_ROWS = 20_000_000
"""With fewer events, the whole day takes less than twice the time."""
# With more added ones, too.
_MOST_ADDED = 0.1


class EarlierStage(Record):
    """What an earlier attempt has stored for a stage of a run, from some of the objects that the run reads."""

    manifest: str
    """URI of the Arrow manifest of its rows."""
    inputs: str
    """URI of its input manifest."""


_Stages = TypeAdapter(dict[str, EarlierStage])


def store_earlier_stages(
    project: Project,
    run: Run,
    inputs: InputManifest,
    earlier: Iterable[RunRecord],
    *,
    since: datetime,
    store: ObjectStore,
    large_rows: int,
) -> None:
    """Store, for each stage of the run that may compute added objects alone, what the latest such attempt has stored.

    These are stages of one source, of attempts with the same definition and code. Their Arrow files are complete and
    were written after `since`: older files may be removed while the run reads them. They read at least `large_rows`.
    With `versions: all`, each step has all of its rows in a version, so no stage computes added objects alone.
    """
    if project.pipeline(run.pipeline).versions == "all":
        return
    digests = project.written_digest(run.pipeline), project.code_digest(run.pipeline)
    attempts = [item.run for item in earlier if (item.definition, item.code) == digests]
    found = {}
    for stage in stages(project.pipeline(run.pipeline)):
        objects = inputs.of_source(stage.reads_sources[0]) if len(stage.reads_sources) == 1 else ()
        rows = sum(item.rows for item in objects)
        if not objects or rows < large_rows:
            continue
        identities = {item.identity for item in objects}
        for attempt in attempts:
            reference = find_reference(attempt.stage_prefix(stage.name), store=store)
            if reference is None:
                continue
            try:
                manifest = read_manifest(store, attempt.manifest)
            except (ObjectMissing, ObjectInvalid):
                continue  # somebody has deleted or damaged it: the stage computes all of its inputs
            before = manifest.of_source(stage.reads_sources[0])
            is_subset = identities.issuperset(item.identity for item in before)
            added = rows - sum(item.rows for item in before)
            if is_subset and added <= _MOST_ADDED * rows and is_readable(reference, since=since, store=store):
                found[stage.name] = EarlierStage(manifest=reference.manifest, inputs=attempt.manifest)
                break
    if found:
        store.put(_uri(run), _Stages.dump_json(found))


def find_earlier_stage(run: Run, stage: str, *, store: ObjectStore) -> EarlierStage | None:
    """Return what `store_earlier_stages` has stored for a stage; None without it."""
    if run.attempt == 1:
        return None
    try:
        return _Stages.validate_json(store.get(_uri(run))).get(stage)
    except ObjectMissing:
        return None


def added_objects(inputs: InputManifest, before: InputManifest) -> InputManifest:
    """Return the manifest with only those of its objects that `before` lacks."""
    known = {item.identity for item in before.objects}
    return structs.replace(inputs, objects=tuple(item for item in inputs.objects if item.identity not in known))


def _uri(run: Run) -> str:
    # Outside of every `stage_prefix`, so that a stage may have any name.
    return f"{run.prefix}earlier.json"
