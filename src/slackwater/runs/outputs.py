"""What a run has written: the versions of its day's data, from the inputs to the table, and what each step did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from slackwater.arrow.dataset import count_files, find_reference, load_manifest
from slackwater.arrow.reference import ArrowManifest, ArrowReference, StepRecord, manifest_uri
from slackwater.errors import ObjectMissing
from slackwater.model import Record
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.finished_stages import finished_stages
from slackwater.runs.record import Loads, RunRecord, StageRecord
from slackwater.runs.step_versions import attempt_prefix, step_references, stored_names
from slackwater.storage import ObjectStore


class VersionType(StrEnum):
    """What a version of a day's data is."""

    INPUT = "input"
    """The raw objects that the input manifest lists."""
    STEP = "step"
    """The Arrow files of a step that does not end a stage: in pipelines with `versions: all`."""
    STAGE = "stage"
    """The Arrow files of a stage."""
    PUBLISHED = "published"
    """The rows of the day in the warehouse table, under the tag of the attempt."""


class VersionState(StrEnum):
    """Whether a version can still be read."""

    PRESENT = "present"
    REMOVED = "removed"
    """Retention has removed the Arrow files."""
    INCOMPLETE = "incomplete"
    """Some of the Arrow files are missing."""
    MISSING = "missing"
    """The manifest is missing, and with it the list of the files."""


class Version(Record):
    """One version of a day's data."""

    attempt: int
    type: VersionType
    name: str
    """`input`, the name of the step or the stage, or `published`."""
    stage: str | None = None
    """The stage of a step."""
    rows: int
    bytes: int | None = None
    files: int | None = None
    parents: tuple[str, ...] = ()
    """URIs of the manifests that it was made from."""
    created: datetime | None
    state: VersionState | None = None
    """None for a published version: its tag keeps it."""
    uri: str
    """Of the manifest. For a published version, the warehouse table and the tag: `VERSION AS OF '<tag>'` reads it."""
    reference: ArrowReference | None = None
    """The Arrow reference of a step or a stage."""
    snapshot_id: str | None = None
    """The Iceberg snapshot of a published version."""


class StepOutcome(NamedTuple):
    """What one step of a run did."""

    stage: str | None
    """None for a load step."""
    record: StepRecord


class RunSteps(NamedTuple):
    """What all steps of a run did, in order, as far as it is stored."""

    steps: tuple[StepOutcome, ...]
    missing: tuple[str, ...]
    """URIs of the manifests of finished stages that do not exist any more."""


def versions(record: RunRecord, *, store: ObjectStore) -> Iterator[Version]:
    """Generate the versions of the attempt: its inputs, the result of each finished stage, what it published.

    With `versions: all`, the results of a stage's steps come before its own; those of stages that have not finished
    follow in the order of time. The manifest of each version is read once, and its Arrow files are listed once. Raises
    `CloudError`.
    """
    run = record.run
    listed = next(store.list(run.manifest), None)
    yield Version(
        attempt=run.attempt,
        type=VersionType.INPUT,
        name="input",
        rows=run.rows,
        bytes=run.bytes,
        files=run.files,
        created=listed.modified if listed else None,
        state=VersionState.PRESENT if listed else VersionState.MISSING,
        uri=run.manifest,
    )
    stages = stages_of(record, store=store)
    yield from _arrow_versions(record, stages, store=store)
    if record.publication:
        yield Version(
            attempt=run.attempt,
            type=VersionType.PUBLISHED,
            name="published",
            rows=record.publication.rows,
            # The job of the last stage publishes the rows of its manifest.
            parents=tuple(stage.reference.manifest for stage in stages[-1:]),
            created=record.ended_at,
            uri=f"{record.publication.table} VERSION AS OF '{run.tag}'",
            snapshot_id=record.publication.snapshot_id,
        )


def run_steps(record: RunRecord, *, store: ObjectStore) -> RunSteps:
    """Return what the steps of the attempt's finished stages, and its load steps, did. Raises `CloudError`."""
    steps, missing = [], []
    for stage in stages_of(record, store=store):
        manifest = _manifest(stage.reference, store=store)
        if manifest is None:
            missing.append(stage.reference.manifest)
        else:
            steps += [StepOutcome(stage.stage, step) for step in _with_own_seconds(manifest.steps)]
    try:
        loads = Loads.model_validate_json(store.get(loads_uri(record.run.prefix)))
    except ObjectMissing:  # the pipeline has no load steps, or they have not ended
        loads = Loads(steps=())
    return RunSteps((*steps, *(StepOutcome(None, step) for step in loads.steps)), tuple(missing))


def stages_of(record: RunRecord, *, store: ObjectStore) -> tuple[StageRecord, ...]:
    """Return the finished stages of the attempt: the record has them when the attempt has ended."""
    return record.stages or finished_stages(record.run, store=store)


def _with_own_seconds(steps: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """Return the steps of a stage, without the seconds of the stage, which earlier versions have stored for each."""
    if len(steps) > 1 and len({step.seconds for step in steps}) == 1:
        return [step.model_copy(update={"seconds": None}) for step in steps]
    return steps


def _arrow_versions(record: RunRecord, stages: Sequence[StageRecord], *, store: ObjectStore) -> Iterator[Version]:
    """Generate the versions that the jobs of the attempt have written, and those that it has kept."""
    prefix = record.run.prefix
    stored = {prefix: stored_names(prefix, store=store)}
    left = set(stored[prefix]) - {item.stage for item in stages}
    for item in stages:
        # A stage that was kept has the versions of its steps in the attempt that has computed it.
        computed_in, manifest = attempt_prefix(item.reference.manifest), _manifest(item.reference, store=store)
        if computed_in not in stored:
            stored[computed_in] = stored_names(computed_in, store=store)
        steps: dict[str, ArrowReference] = {}
        if manifest:
            steps = step_references(manifest, prefix=computed_in, names=stored[computed_in], store=store)
        left -= set(steps)
        for name, reference in steps.items():
            yield _arrow_version(record, name, reference, _manifest(reference, store=store), store=store)
        yield _arrow_version(record, item.stage, item.reference, manifest, has_steps=bool(steps), store=store)
    unfinished = {name: find_reference(f"{prefix}{name}/", store=store) for name in sorted(left)}
    found = [
        _arrow_version(record, name, reference, _manifest(reference, store=store), store=store)
        for name, reference in unfinished.items()
        if reference
    ]
    yield from sorted(found, key=lambda version: str(version.created))


def _arrow_version(
    record: RunRecord,
    name: str,
    reference: ArrowReference,
    manifest: ArrowManifest | None,
    *,
    has_steps: bool = False,
    store: ObjectStore,
) -> Version:
    """Return the version of a stage or a step; `has_steps` says whether the other steps of the stage have versions."""
    of_step = manifest is not None and manifest.producer.stage != name
    state = VersionState.MISSING
    if manifest:
        # The files of a stage that was kept belong to an earlier attempt.
        present = count_files(manifest, store=store)
        state = VersionState.INCOMPLETE if present else VersionState.REMOVED
        if present == len(manifest.files):
            state = VersionState.PRESENT
    return Version(
        attempt=record.run.attempt,
        type=VersionType.STEP if of_step else VersionType.STAGE,
        name=name,
        stage=manifest.producer.stage if manifest and of_step else None,
        rows=reference.rows,
        bytes=reference.bytes,
        files=reference.files,
        parents=_parents(record, manifest, is_one_step=of_step or has_steps) if manifest else (),
        created=manifest.created_at if manifest else None,
        state=state,
        uri=reference.manifest,
        reference=reference,
    )


def _parents(record: RunRecord, manifest: ArrowManifest, *, is_one_step: bool) -> tuple[str, ...]:
    """Return the URIs of the manifests that a version was made from, with that of the run's inputs if it reads them."""
    # With `versions: all`, the manifest names the inputs of one step. Those of a stage that was kept are the same
    # objects in the manifest of this run.
    ending = manifest_uri("/")
    inputs = record.run.manifest
    exact = tuple(dict.fromkeys(uri if uri.endswith(ending) else inputs for uri in manifest.parents))
    if is_one_step or inputs in exact:
        return exact
    # It reads frozen inputs in a step of it, or as a name that is no step and no stage.
    results = {step.name for step in manifest.steps} | {uri.split("/")[-2] for uri in manifest.parents}
    if any(step.step == "read_partition" or not set(step.rows_in) <= results for step in manifest.steps):
        return (inputs, *manifest.parents)
    return manifest.parents


def _manifest(reference: ArrowReference, *, store: ObjectStore) -> ArrowManifest | None:
    """Return the manifest that a reference names, or None if it does not exist. Raises `ObjectInvalid`."""
    try:
        return load_manifest(reference.manifest, store=store)
    except ObjectMissing:
        return None
