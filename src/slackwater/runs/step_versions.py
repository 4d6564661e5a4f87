"""The versions of the steps of a stage, which a pipeline with `versions: all` stores, and where they are.

The manifest and the reference of a step lie beside those of its stage, under the name of the step. The result of a
stage's last step is the version of the stage.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import TypeAdapter

from slackwater.arrow.dataset import find_reference
from slackwater.arrow.reference import ArrowManifest, ArrowReference, reference_uri
from slackwater.errors import ObjectMissing
from slackwater.storage import ObjectStore

_Names = TypeAdapter(tuple[str, ...])


def attempt_prefix(manifest: str) -> str:
    """Return the URI prefix of the attempt that has written a dataset, from the URI of its manifest.

    >>> attempt_prefix("s3://exchange/runs/sales/2024-03-04/0f3b/2/joined/manifest.json")
    's3://exchange/runs/sales/2024-03-04/0f3b/2/'
    """
    return manifest.rsplit("/", 2)[0] + "/"


def stored_names(prefix: str, *, store: ObjectStore) -> frozenset[str]:
    """Return the names of the stages and steps that have a reference under the prefix of an attempt."""
    ending = reference_uri("/")
    return frozenset(
        item.uri.removeprefix(prefix).removesuffix(ending)
        for item in store.list(prefix)
        if item.uri.endswith(ending) and item.uri.count("/") == prefix.count("/") + 1
    )


def step_references(
    manifest: ArrowManifest, *, prefix: str, names: Collection[str], store: ObjectStore
) -> dict[str, ArrowReference]:
    """Return the references of the steps before the last one of a finished stage, in the order in which they ran.

    `manifest` is that of the stage, `prefix` that of the attempt that has computed it, and `names` what is there.
    """
    before = [step.name for step in manifest.steps[:-1] if step.name in names]
    found = {name: find_reference(f"{prefix}{name}/", store=store) for name in before}
    return {name: reference for name, reference in found.items() if reference}


def store_lookups(prefix: str, names: tuple[str, ...], *, store: ObjectStore) -> None:
    """Store the names of versions that steps of a stage have looked up, and that its identity does not cover.

    `prefix` is that of the stage in its attempt.
    """
    store.put(_lookups_uri(prefix), _Names.dump_json(names))


def find_lookups(prefix: str, *, store: ObjectStore) -> tuple[str, ...]:
    """Return what `store_lookups` has stored; nothing without it."""
    try:
        return _Names.validate_json(store.get(_lookups_uri(prefix)))
    except ObjectMissing:
        return ()


def _lookups_uri(prefix: str) -> str:
    return f"{prefix}lookups.json"
