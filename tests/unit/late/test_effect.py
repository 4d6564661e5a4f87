"""The effect of a change, the causes of it, and the document that programs receive."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest

from slackwater.costs.cost import RunCost
from slackwater.late.comparison import Cause, Comparison, HourTotals, MetricChange, RowCounts
from slackwater.late.effect import effect_percent, needs_message, severity
from slackwater.late.report.document import (
    MAX_ALL_FILES,
    MAX_ALL_HOURS,
    MAX_FILES,
    MAX_METRICS,
    ChangeDocument,
    change_document,
)
from slackwater.late.report.message import compose
from slackwater.model import json_schema
from slackwater.pipeline.definition import NotifyRules
from slackwater.runs.comparison_run import AttemptCosts
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from tests.fakes_notification import a_comparison

pytestmark = pytest.mark.unit

CONTRACT = Path(__file__).resolve().parents[3] / "docs" / "contracts" / "change.schema.json"
SAME = (SourceDifference(source="flights", before=Amount(rows=5), now=Amount(rows=5)),)


def with_metrics(*pairs, **more):
    metrics = tuple(
        MetricChange(metric=f"m{index}", total="sum", before=before, after=after)
        for index, (before, after) in enumerate(pairs)
    )
    return a_comparison().model_copy(update={"metrics": metrics, **more})


def of_versions(before, after, *, inputs=None):
    """A comparison of versions with these (definition, code)."""
    comparison = a_comparison(inputs=inputs or ())
    versions = [
        version.model_copy(update=dict(zip(("definition", "code"), pair, strict=True)))
        for version, pair in ((comparison.before, before), (comparison.after, after))
    ]
    return comparison.model_copy(update={"before": versions[0], "after": versions[1]})


def document(comparison):
    return change_document(comparison, summary="s", comparison_uri="s3://e/c.json", report_uri="s3://e/r.html")


@pytest.mark.parametrize(
    ("pairs", "percent"),
    [
        ([(831, 883), (100, 104)], 100 * 52 / 831),
        ([(-50, -40)], 20),
        ([(100, 0)], 100),
        ([(0, 3)], math.inf),
        ([(None, 3)], math.inf),
        ([(3, None)], math.inf),
        ([(0.1 + 0.2, 0.3)], 0),  # equal within the tolerance of sums of floating-point numbers
        ([(5, 5)], 0),
    ],
)
def test_the_effect_is_the_largest_relative_change_of_a_metric(pairs, percent):
    assert effect_percent(with_metrics(*pairs)) == pytest.approx(percent)


def test_without_metrics_the_effect_is_the_share_of_rows_that_differ():
    rows = RowCounts(before=40, after=50, added=10, removed=0, changed=2)
    assert effect_percent(with_metrics(rows=rows)) == 24
    none = RowCounts(before=0, after=0, added=0, removed=0, changed=0)
    assert effect_percent(with_metrics(rows=none)) == 0


@pytest.mark.parametrize(("limit", "expected"), [(0, "warning"), (10, "warning"), (10.5, "info")])
def test_the_severity_depends_on_the_effect(limit, expected):
    comparison = with_metrics((100, 110), notify=NotifyRules(warning_percent=limit))
    assert severity(comparison) == expected


@pytest.mark.parametrize(("least", "expected"), [(0, True), (10, True), (10.01, False)])
def test_a_small_effect_is_not_worth_a_message(least, expected):
    assert needs_message(with_metrics((100, 110), notify=NotifyRules(min_effect_percent=least))) is expected


def test_by_default_a_change_of_rows_is_worth_a_message_even_if_no_metric_has_moved():
    assert needs_message(with_metrics((5, 5)))
    same = RowCounts(before=5, after=5, added=0, removed=0, changed=0)
    assert not needs_message(with_metrics((5, 6), rows=same))


@pytest.mark.parametrize(
    ("before", "after", "inputs", "causes", "opening"),
    [
        (("d", "c"), ("d", "c"), None, {"late_data"}, "Late data has changed"),
        (("d", "c"), ("e", "c"), None, {"late_data", "new_definition"}, "Late data and a new definition have changed"),
        (("d", "c"), ("e", "f"), SAME, {"new_definition", "new_code"}, "A new definition and new code have changed"),
        (("d", "c"), ("d", "f"), SAME, {"new_code"}, "New code has changed"),
        (("", ""), ("d", "c"), SAME, set(), "A new run has changed"),  # before these digests were recorded
        (("d", "c"), ("d", "c"), SAME, set(), "A new run has changed"),
    ],
)
def test_the_causes_open_the_message(before, after, inputs, causes, opening):
    comparison = of_versions(before, after, inputs=inputs)
    assert set(comparison.causes) == causes
    assert compose(comparison).body.startswith(f"{opening} daily_delays for 2013-03-10:\n")


def test_with_a_new_definition_the_effect_is_not_attributed_to_late_data():
    message = compose(of_versions(("d", "c"), ("e", "c")))
    assert message.subject == (
        "daily_delays 2013-03-10 changed by late data and a new definition: flights 831 -> 883 (+6.3 %)"
    )
    assert (
        "\nCauses\n"
        "  Late data and a new definition have changed the day since the earlier\n"
        "  version. The comparison cannot tell which of them has changed a value:\n"
        "  slackwater diff --split computes it.\n"
    ) in message.body


def test_the_costs_of_the_run_and_the_comparison_are_shown_once_they_are_known():
    comparison, cost = a_comparison(), RunCost(jobs=1, usd=0.0123)
    known = comparison.with_costs(AttemptCosts(cost, 0.0119))
    assert "\nCost\n  run: 0.0123 USD, 1 Spark job\n  comparison: 0.0119 USD\n" in compose(known).body
    assert (document(known).cost_usd, document(known).comparison_cost_usd) == (0.0123, 0.0119)
    only_run = comparison.with_costs(AttemptCosts(cost, None))
    assert "comparison: " not in compose(only_run).body
    assert (document(only_run).cost_usd, document(only_run).comparison_cost_usd) == (0.0123, None)
    unknown = comparison.with_costs(AttemptCosts(RunCost(jobs=1), None))
    assert "Cost" not in compose(unknown).body
    assert document(unknown).cost_usd is None
    # A cost that was known when the versions were chosen is kept.
    assert only_run.with_costs(AttemptCosts(None, None)) == only_run


def test_a_comparison_of_an_earlier_release_can_be_read():
    stored = json.loads(a_comparison().model_dump_json())
    for name in ("team", "notify"):
        del stored[name]
    for version in (stored["before"], stored["after"]):
        for name in ("definition", "code", "cost"):
            del version[name]
    comparison = Comparison.model_validate(stored)
    assert comparison.causes == (Cause.LATE_DATA,)
    assert needs_message(comparison)


def test_a_rollback_is_the_only_cause_of_its_change():
    comparison = a_comparison()
    after = comparison.after.model_copy(update={"rollback": 1, "definition": "other", "code": "other"})
    rolled_back = comparison.model_copy(update={"after": after})
    assert rolled_back.causes == document(rolled_back).causes == (Cause.ROLLBACK,)
    message = compose(rolled_back)
    assert " changed by a rollback to version 1: " in message.subject
    assert message.body.startswith("A rollback to version 1 has changed ")


def test_the_contract_in_docs_is_up_to_date():
    assert CONTRACT.read_text(encoding="utf-8") == json_schema(ChangeDocument), (
        "write it again: python -m slackwater.late.report.document > docs/contracts/change.schema.json"
    )


@pytest.mark.parametrize("pairs", [[(831, 883)], [(0, 3), (None, 2)], []])
def test_a_document_follows_the_contract(pairs):
    content = document(with_metrics(*pairs))
    stored = json.loads(content.model_dump_json())
    jsonschema.Draft202012Validator(json.loads(CONTRACT.read_text(encoding="utf-8"))).validate(stored)
    assert ChangeDocument.model_validate(stored) == content


def many_files(source, count):
    """A source with late files, whose names are as long as names may be."""
    changes = tuple(
        InputChange(
            source=source, date="2013-03-10", hour="12", file=f"{index}-{'東' * 250}", change=Change.ADDED,
            now=Amount(objects=1, rows=index),
        )
        for index in range(count)
    )  # fmt: skip
    return SourceDifference(source=source, before=Amount(), now=Amount(), changes=changes)


def test_a_document_is_small_for_any_comparison():
    hours = tuple(
        HourTotals(hour=f"2013-11-03T{hour:02}:00-05:00", before=-1.234567890123456e-300, after=-1.234567890123456e300)
        for hour in range(25)
    )
    metrics = tuple(
        MetricChange(metric="東" * 250, total="sum", before=0.1, after=1e300, hours=hours) for _ in range(500)
    )
    inputs = tuple(many_files(f"source_{index}", 50) for index in range(500))
    content = document(a_comparison(inputs=inputs).model_copy(update={"metrics": metrics}))
    assert len(content.metrics) == MAX_METRICS
    assert [len(item.hours) for item in content.metrics] == [25, MAX_ALL_HOURS - 25, *[0] * 18]
    assert {item.changed_hours for item in content.metrics} == {25}
    assert [len(item.files) for item in content.inputs] == [MAX_FILES, MAX_ALL_FILES - MAX_FILES, *[0] * 18]
    assert {item.changed_files for item in content.inputs} == {50}
    # SNS carries the document five times, in at most 256 KB.
    assert len(content.model_dump_json().encode()) < 40_000


def test_a_document_has_the_hours_that_changed():
    """Also of a metric whose total is the same, because values have moved from one hour to another."""
    hours = [
        HourTotals(hour=f"2013-03-08T0{index}:00", before=before, after=after)
        for index, (before, after) in enumerate([(3, 3), (4, 2), (1, 3)])
    ]
    metrics = [
        MetricChange(metric=name, total="sum", before=8, after=8, exact=True, hours=tuple(of_metric))
        for name, of_metric in (("flights", hours), ("seats", hours[:1]), ("delay", ()))
    ]
    (flights,) = document(a_comparison().model_copy(update={"metrics": tuple(metrics)})).metrics
    assert (flights.metric, flights.changed_hours, flights.hours) == ("flights", 2, tuple(hours[1:]))


def test_a_document_names_the_files_that_changed():
    [source] = document(a_comparison()).inputs
    assert [(file.file, file.change, file.rows_before, file.rows_after) for file in source.files] == [
        ("flights-2013-03-10-08.csv", "changed", 118, 120),
        ("flights-2013-03-10-20.csv", "added", 0, 50),
    ]
    assert source.changed_files == 2
    # The newest object of the file with two hours.
    assert source.files[1].arrived == max(item.arrived for item in a_comparison().inputs[0].changes)
