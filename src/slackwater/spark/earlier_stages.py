"""Find what the earlier stages of a run have stored, and read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.dataset import find_reference, load_manifest
from slackwater.arrow.exchange import StoreFactory, read_frame
from slackwater.errors import ObjectMissing
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, ancestors
from slackwater.runs.record import Run
from slackwater.storage import ObjectStore


def upstream_manifests(run: Run, stage: Stage, *, store: ObjectStore) -> dict[str, str]:
    """Return the URIs of the manifests of the stages that a stage reads, by name. Raises `ObjectMissing`."""
    return {name: stage_manifest(run, name, store=store) for name in stage.reads_stages}


def stage_manifest(run: Run, stage: str, *, store: ObjectStore) -> str:
    """Return the URI of the manifest of a stage that the run has finished, or has kept from an earlier attempt.

    Raises `ObjectMissing` if it has done neither.
    """
    reference = find_reference(run.stage_prefix(stage), store=store)
    if reference is None:
        raise ObjectMissing(f"{run.stage_prefix(stage)}: stage {stage} has not been finished in this run")
    return reference.manifest


class EarlierVersions(Mapping[str, DataFrame]):
    """The results of the stages from which a stage is computed, by name. Each is read when it is looked up."""

    def __init__(self, run: Run, pipeline: Pipeline, stage: str, spark: SparkSession, *, stores: StoreFactory) -> None:
        # Other earlier stages run in parallel, and may not have finished.
        self._names = [item.name for item in ancestors(pipeline, stage)]
        self._run, self._spark, self._stores = run, spark, stores
        self.read: list[str] = []
        """URIs of the manifests of those that were looked up."""

    def __getitem__(self, name: str) -> DataFrame:
        """Return the result of the stage. Raises `KeyError` for any other stage."""
        if name not in self._names:
            raise KeyError(name)
        uri = stage_manifest(self._run, name, store=self._stores())
        self.read.append(uri)
        return read_frame(self._spark, load_manifest(uri, store=self._stores()), stores=self._stores)

    def __iter__(self) -> Iterator[str]:
        """Generate the names of the stages, each after those that it reads."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of earlier stages."""
        return len(self._names)
