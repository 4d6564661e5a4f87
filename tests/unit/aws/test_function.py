"""The correlation id in the log lines of every function that a state machine calls."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path

import pytest
from aws_lambda_powertools import Logger
from pydantic import ValidationError

from slackwater.aws.function import with_correlation_id

pytestmark = pytest.mark.unit

# Each request of the API, each message of a queue, and each check that a function starts has an id of its own, and
# nobody passes one to what rules invoke.
OWN_IDS = {
    *("receive_events", "store_events", "check_arrivals", "fold_state"),
    *("remove_stale", "maintain_tables", "pack_objects"),
}
FUNCTIONS = sorted({path.stem for path in Path("lambdas").glob("*.py")} - OWN_IDS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_error_is_logged_with_the_correlation_id_of_the_event_and_raised(function, monkeypatch):
    module, logs = importlib.import_module(f"lambdas.{function}"), io.StringIO()
    monkeypatch.setattr(module.logger.registered_handler, "stream", logs)
    for number, event in enumerate(({"correlation_id": "c-0"}, {"run": {"correlation_id": "c-1"}}, {}, {"run": "x"})):
        with pytest.raises(ValidationError):
            module.handler(event, None)
        line = json.loads(logs.getvalue().splitlines()[-1])
        assert (line["level"], line["message"], line["exception_name"]) == ("ERROR", "failed", "ValidationError")
        assert line["correlation_id"] == (f"c-{number}" if number < 2 else "")


def test_a_line_has_the_pipeline_and_the_date_of_its_own_event_only():
    logs = io.StringIO()
    logger = Logger(service="any", stream=logs)
    handle = with_correlation_id(logger)(lambda event, context: logger.info("done") or {})
    day = {"pipeline": "p", "date": "2013-03-10"}
    for event in (day, {"run": day}, {"pipeline": "q"}):
        handle(event, None)
    lines = [json.loads(line) for line in logs.getvalue().splitlines()]
    assert [(line.get("pipeline"), line.get("date")) for line in lines] == [
        ("p", "2013-03-10"),
        ("p", "2013-03-10"),
        ("q", None),
    ]
