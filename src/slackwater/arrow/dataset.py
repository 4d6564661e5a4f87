"""Store the manifest and the reference of a dataset, and find them again: without Spark and without Arrow."""

from __future__ import annotations

from pydantic import ValidationError

from slackwater.arrow.reference import ArrowManifest, ArrowReference, manifest_uri, reference_uri
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.storage import ObjectStore


def store_dataset(
    manifest: ArrowManifest, prefix: str, *, store: ObjectStore, seconds: float, is_merged: bool = False
) -> ArrowReference:
    """Store the manifest and then the reference under `prefix`, each by one PUT, and return the reference.

    `seconds` is how long the dataset took to compute and write. `is_merged` is the field of the reference.
    """
    uri = manifest_uri(prefix)
    # The reference is written last, so that the manifest and all files exist whenever it does.
    store.put(uri, manifest.model_dump_json().encode())
    reference = ArrowReference(
        manifest=uri,
        rows=manifest.rows,
        bytes=manifest.bytes,
        files=len(manifest.files),
        seconds=round(seconds, 3),
        is_merged=is_merged,
    )
    store.put(reference_uri(prefix), reference.model_dump_json().encode())
    return reference


def find_reference(prefix: str, *, store: ObjectStore) -> ArrowReference | None:
    """Return the reference of the dataset under `prefix`, or None if there is none: then it is not complete."""
    try:
        return ArrowReference.model_validate_json(store.get(reference_uri(prefix)))
    except ObjectMissing:
        return None


def stage_manifest(prefix: str, *, store: ObjectStore) -> str:
    """Return the URI of the manifest of a stage that the run has finished, or has kept from an earlier attempt.

    `prefix` is that of the stage in the run. Raises `ObjectMissing` if it has done neither.
    """
    reference = find_reference(prefix, store=store)
    if reference is None:
        raise ObjectMissing(f"{prefix} has no reference: this stage has not been finished in this run")
    return reference.manifest


def count_files(manifest: ArrowManifest, *, store: ObjectStore) -> int:
    """Return how many files of a dataset exist: retention removes them, and the manifest stays."""
    folders = {file.uri.rpartition("/")[0] + "/" for file in manifest.files}
    stored = {item.uri for folder in folders for item in store.list(folder)}
    return sum(file.uri in stored for file in manifest.files)


def load_manifest(uri: str, *, store: ObjectStore) -> ArrowManifest:
    """Read the manifest at `uri`. Raises `ObjectMissing`, and `ObjectInvalid` for another format or version."""
    try:
        return ArrowManifest.model_validate_json(store.get(uri))
    except ValidationError as error:
        raise ObjectInvalid(
            f"{uri} is not a manifest that this version can read: run the day again: {error}"
        ) from error
