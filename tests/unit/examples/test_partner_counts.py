"""The example in which a run waits for all that two partners have sent."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from examples.partner_counts.events import events
from slackwater.project.project import load_definitions

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "partner_counts"
DAY = date(2026, 1, 5)


def test_the_pipeline_waits_for_both_sources_and_both_report():
    project = load_definitions(FOLDER)
    pipeline = project.pipelines["revenue"]
    assert pipeline.when.inputs == {"clicks": "complete", "orders": "complete"}
    assert set(pipeline.sources) == pipeline.when.inputs.keys()
    assert all(source.counts and source.push for source in project.sources.values())


@pytest.mark.parametrize(("source", "of_an_hour"), [("clicks", 5), ("orders", 2)])
def test_events_of_all_hours_are_sent_so_that_their_report_is_about_the_whole_day(source, of_an_hour):
    sent = list(events(source, DAY))
    hours = Counter(str(event["at"])[:13] for event in sent)
    assert hours == {f"{DAY}T{hour:02}": of_an_hour for hour in range(24)}
    assert len({event["id"] for event in sent}) == len(sent)
