"""The names that the package exports, and what their import costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import slackwater

pytestmark = pytest.mark.unit


def test_every_exported_name_is_a_class_of_the_client():
    assert sorted(slackwater.__all__) == slackwater.__all__
    for name in slackwater.__all__:
        exported = getattr(slackwater, name)
        assert exported.__name__ == name
        assert exported.__module__.startswith("slackwater.client.")
    with pytest.raises(AttributeError, match="has no attribute 'Session'"):
        _ = slackwater.Session


RECEIVER = """\
import lambdas.receive_events, lambdas.store_events, lambdas.list_files, lambdas.fetch_file
import lambdas.redrive_events, lambdas.remove_stale, slackwater.receiver.pull.stale_objects
import slackwater.aws.dynamodb.file_cache, slackwater.aws.dynamodb.tokens, slackwater.aws.dynamodb.event_counts
"""
CHECKS = """\
import lambdas.check_arrivals, lambdas.check_days, lambdas.freeze_inputs
# What these import when they are called.
import slackwater.aws.glue_tables, slackwater.aws.dynamodb.run_table, slackwater.aws.dynamodb.file_cache
import slackwater.aws.executions.state_machines, slackwater.runs.inputs.listing, slackwater.runs.inputs.foreign_tables
"""


@pytest.mark.parametrize(
    "imports",
    [
        [
            ("import slackwater", ["slackwater.client", "boto3", "pydantic"]),
            ("import lambdas.receive_events", ["slackwater.client", "httpx", "duckdb"]),
            (RECEIVER, ["slackwater.late"]),
        ],
        [(CHECKS, ["slackwater.client", "httpx", "pyarrow"])],
        [
            ("import slackwater.cli.main", ["slackwater.client.client", "boto3", "pydantic", "yaml"]),
            ("from slackwater import Client", ["httpx", "duckdb", "pyarrow", "pyiceberg"]),
            ("import slackwater.client.results", ["httpx", "duckdb", "jinja2"]),
        ],
    ],
    ids=["receiver", "checks", "client"],
)
def test_an_import_loads_nothing_that_it_does_not_need(imports):
    """The imports are made in one process, one after the other."""
    script = "import sys\n" + "\n".join(
        f"{code}\nprint(*(name for name in {absent} if name in sys.modules))" for code, absent in imports
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
