"""The run as JSON: one argument of every Spark job, and part of every state's input."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from slackwater.runs.attempt_files import failure_uri, publication_uri
from slackwater.runs.record import RUN_LIMIT, Run
from tests.fakes_runs import LONGEST_RUN as LONGEST

pytestmark = pytest.mark.unit


def test_a_run_with_the_longest_names_stays_within_its_limit():
    assert len(LONGEST.model_dump_json().encode()) <= RUN_LIMIT


def test_no_stage_writes_to_the_uris_of_the_publication_and_the_failure():
    for uri in (publication_uri(LONGEST.prefix), failure_uri(LONGEST.prefix)):
        assert "/" not in uri.removeprefix(LONGEST.prefix)
    assert LONGEST.stage_prefix("publish") == f"{LONGEST.prefix}publish/"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"date": "2013-02-30"}, "date"),
        ({"date": "20130310"}, "date"),
        ({"date": "2013-W10-7"}, "date"),
        ({"correlation_id": "c" * 129}, "correlation_id"),
        ({"attempt": 0}, "attempt"),
    ],
)
def test_the_error_for_an_invalid_run_names_the_field(change, field):
    with pytest.raises(ValidationError) as refused:
        Run.model_validate(LONGEST.model_dump() | change)
    assert [fault["loc"] for fault in refused.value.errors()] == [(field,)]
