"""The finished stages of a run, and those of earlier runs of the day that it need not compute again.

A stage has an identity: its inputs, its steps with their parameters, and the code of both. A run writes the identities
of its stages when it starts. A stage of an earlier attempt that has the same identity is kept: the new attempt gets a
copy of its reference, so that the jobs that read the stage find it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import structs
from pydantic import TypeAdapter

from slackwater.arrow.dataset import count_files, find_reference, load_manifest
from slackwater.arrow.reference import ArrowReference, manifest_uri, reference_uri
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.pipeline.graph import stages
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.record import Run, StageRecord
from slackwater.runs.step_versions import attempt_prefix, find_lookups, step_references, stored_names
from slackwater.storage import ObjectStore

_Identities = TypeAdapter(dict[str, str])


def stage_identities(project: Project, run: Run, manifest: InputManifest, *, published: int) -> dict[str, str]:
    """Return the identity of each stage of the run's pipeline, as SHA-256 by name, in the order of the stages.

    `manifest` has the run's inputs, and `published` is the attempt that the day's published version comes from, 0
    without one. A stage whose steps read files, tables or an API of their own cannot see whether these have changed, so
    its identity is the same only in attempts of one run that follow the same published version.
    """
    pipeline = project.pipeline(run.pipeline)
    identities: dict[str, str] = {}
    for stage in stages(pipeline):
        parts = [f"{run.pipeline} {run.date} {pipeline.timezone}", f"job {project.code.job}"]
        # A stage that was computed at once has no versions of its steps.
        parts += ["versions all"] if pipeline.versions == "all" else []
        for name in stage.steps:
            use = pipeline.steps[name]
            parts.append(f"step {name} {project.code.steps.get(use.step, '')} {use.model_dump_json(by_alias=True)}")
            if not use.depends_on:
                parts.append(f"outside {run.run_id} {published}")
        for source in stage.reads_sources:
            objects = structs.replace(manifest, objects=manifest.of_source(source))
            shape = project.source_shape(source) if source in pipeline.sources else source
            parts.append(f"source {shape} {objects.digest}")
        parts += [f"stage {name} {identities[name]}" for name in stage.reads_stages]
        identities[stage.name] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return identities


def keep_finished_stages(
    run: Run,
    identities: Mapping[str, str],
    earlier: Iterable[Run],
    *,
    since: datetime,
    store: ObjectStore,
    all_versions: bool = False,
) -> frozenset[str]:
    """Store the identities of the run's stages, keep the stages that `earlier` attempts have finished; return these.

    A stage is kept from the first of the attempts that has it with the same identity, with all of its Arrow files, and
    written after `since`: older files may be removed by retention while the run reads them. With `all_versions`, the
    files of its steps count as well, and a stage whose steps have looked up more than its identity covers is kept in
    attempts of one run only.
    """
    store.put(_identities_uri(run.prefix), _Identities.dump_json(dict(identities)))
    kept = {stage for stage in identities if find_reference(run.stage_prefix(stage), store=store)}
    for attempt in earlier:
        known = _identities(attempt, store=store)
        for stage, identity in identities.items():
            if stage not in kept and known.get(stage) == identity:
                reference = find_reference(attempt.stage_prefix(stage), store=store)
                if reference is None or not is_readable(reference, since=since, store=store):
                    continue
                if not all_versions or _keeps_versions(reference, run, attempt, since=since, store=store):
                    store.put(reference_uri(run.stage_prefix(stage)), reference.model_dump_json().encode())
                    kept.add(stage)
    return frozenset(kept)


def _keeps_versions(reference: ArrowReference, run: Run, attempt: Run, *, since: datetime, store: ObjectStore) -> bool:
    """Return whether a finished stage of an earlier attempt has the versions of its steps that the run would write."""
    # What it has looked up is the same in attempts with the same inputs, definition and code.
    if find_lookups(reference.manifest.removesuffix(manifest_uri("")), store=store) and attempt.run_id != run.run_id:
        return False
    prefix, manifest = attempt_prefix(reference.manifest), load_manifest(reference.manifest, store=store)
    steps = step_references(manifest, prefix=prefix, names=stored_names(prefix, store=store), store=store)
    return all(is_readable(step, since=since, store=store) for step in steps.values())


def finished_stages(run: Run, *, store: ObjectStore) -> tuple[StageRecord, ...]:
    """Return the stages that the run has finished or kept so far, in order."""
    names = _identities(run, store=store)
    references = {stage: find_reference(run.stage_prefix(stage), store=store) for stage in names}
    return tuple(StageRecord(stage=stage, reference=reference) for stage, reference in references.items() if reference)


def stage_names(run: Run, *, store: ObjectStore) -> tuple[str, ...]:
    """Return all stages of the run, in order; none if the run has not stored them yet."""
    return tuple(_identities(run, store=store))


def _identities(run: Run, *, store: ObjectStore) -> dict[str, str]:
    try:
        return _Identities.validate_json(store.get(_identities_uri(run.prefix)))
    except ObjectMissing:
        return {}


def is_readable(reference: ArrowReference, *, since: datetime, store: ObjectStore) -> bool:
    """Return whether a stage was written after `since`, and its manifest and all of its files exist."""
    try:
        manifest = load_manifest(reference.manifest, store=store)
    except (ObjectMissing, ObjectInvalid):
        return False
    return manifest.created_at > since and count_files(manifest, store=store) == len(manifest.files)


def _identities_uri(prefix: str) -> str:
    """Return the URI of the identities of an attempt's stages. `prefix` is `Run.prefix`."""
    # Outside of every `stage_prefix`, so that a stage may have any name.
    return f"{prefix}stages.json"
