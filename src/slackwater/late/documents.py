"""Reading stored documents of which a damaged one must not stop the ledger of a whole pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from slackwater.errors import ObjectMissing
from slackwater.model import Record
from slackwater.storage import ObjectStore

DocumentT = TypeVar("DocumentT", bound=Record)
OnUnreadable = Callable[[str, str], None]
"""Called with the URI of a document that cannot be read, and the reason."""


def read_document(
    store: ObjectStore, uri: str, model: type[DocumentT], *, on_unreadable: OnUnreadable
) -> DocumentT | None:
    """Return the document at `uri`; None if it is missing, or cannot be read as `model`, which is reported."""
    try:
        return model.model_validate_json(store.get(uri))
    except ObjectMissing:
        return None
    except ValidationError as error:
        on_unreadable(uri, str(error))
        return None
