"""What a person has to know, and would not find: `slackwater pull` and `slackwater run` say it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.cloud.conftest import AS_OF, PAST

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

HEADER = "id,at\n"


def test_a_pull_names_each_file_that_it_does_not_take_and_takes_the_others(cloud, partner):
    files = {
        "notes-2024-05-02.csv": f"{HEADER}a,2024-05-02 00:30:00\n",  # a name of the local day
        "notes-2024-05-02-empty.csv": HEADER,
        "notes-2024-05-02-large.csv": f"{HEADER}{'x' * 2_000_000},2024-05-02 12:00:00\n",
        "notes-2024-05-03.csv": f"{HEADER}a,2024-05-03 00:30:00\n",
    }
    for name, content in files.items():
        partner.put(name, content)
    shown = cloud.slackwater("pull", "notes", "--as-of", "2024-05-02", code=1)
    assert "notes-2024-05-02-empty.csv: no row (sources/notes.yaml has `empty_files: fail`)" in shown.err
    assert "(all: slackwater files list notes --state failed)" in shown.err
    failed = cloud.slackwater("files", "list", "notes", "--state", "failed").out
    assert "raise max_file_mb in sources/notes.yaml" in failed
    assert "notes-2024-05-03" not in shown.out + shown.err
    assert cloud.query("SELECT id, \"at\" = '2024-05-01T22:30:00Z' FROM raw.notes") == [["a", True]]


def test_a_run_of_a_day_that_goes_on_and_has_no_events_says_both(cloud, received):
    day = datetime.now(ZoneInfo("America/New_York")).date()
    shown = cloud.slackwater("run", "daily_delays", "--date", str(day)).err
    assert f"{day} in America/New_York has not ended" in shown
    assert f"the inputs have no event of {day} in America/New_York" in shown


def test_a_run_ends_the_hold_of_a_day_whose_file_is_back(cloud, monitored, partner):
    day, name = PAST[0], f"flights-{PAST[0]}-12.csv"
    run, content = ("run", "daily_delays", "--date", day), partner.read(name)
    partner.remove(name)
    try:
        cloud.slackwater("pull", "flights", "--as-of", AS_OF)
        refused = cloud.slackwater(*run, code=1).err
        assert f"error: daily_delays for {day}: InputError: the inputs have lost " in refused
        cloud.slackwater("monitor", "daily_delays", "--as-of", AS_OF)
        assert f"{day} " in cloud.slackwater("late").out
    finally:
        partner.put(name, content)
        cloud.slackwater("pull", "flights", "--as-of", AS_OF)
    shown = cloud.slackwater(*run).err
    assert "the day is no longer on hold: a run has found that the inputs are those of the published version" in shown
    assert f"{day} " not in cloud.slackwater("late").out
