"""The drill as a whole: each alarm has a test, each runbook's commands work, and no cause sends a second message."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter

import pytest

from tests.cloud.alarms import test_days, test_queues, test_sources
from tests.cloud.alarms.aws_commands import PAGES, commands_of
from tests.cloud.alarms.drill import DAY, PIPELINE, deployed_alarms

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


def runbook_commands():
    """Return the commands of all runbooks that the project's command line runs, in the order of the pages.

    `doctor` is left out: its exit code depends on this machine, and test_doctor.py runs it.
    """
    commands = dict.fromkeys(line for page in PAGES for line in commands_of(page.stem, "slackwater"))
    return [command for command in commands if command != "slackwater doctor"]


def test_the_commands_of_the_runbooks_work(cloud, received, published_today, broken):
    values = {"PIPELINE": PIPELINE, "SOURCE": "flights", "DATE": DAY, "PATH": broken, "NUMBER": "1"}
    # Other commands fail while the day is on hold, and while the broken file is tried.
    first = ("slackwater late release", "slackwater files give-up")
    commands = sorted(runbook_commands(), key=lambda command: not command.startswith(first))
    # The day is released by then.
    expected = {command: 2 if command.startswith("slackwater late keep") else 0 for command in commands}
    unexpected = {}
    for command in commands:
        words = shlex.split(re.sub("|".join(values), lambda match: values[match[0]], command))
        result = cloud.slackwater(*words[1:], code=None)
        if result.code != expected[command]:
            unexpected[command] = result.err or result.out
    assert unexpected == {}


def test_every_alarm_of_the_deployment_has_a_test_that_causes_it(cloud):
    tests = [test for module in (test_days, test_queues, test_sources) for test in vars(module).values()]
    drill = {alarm: test for test in tests for alarm in getattr(test, "causes", ())}
    assert set(drill) == {page.stem for page in PAGES}
    subjects = {f"-{path.stem}" for folder in ("pipelines", "sources") for path in (cloud.project / folder).iterdir()}
    subjects |= {"-pull-source", "-compare-day", "-backfill"}
    alarms = deployed_alarms(cloud)
    kinds = {next((name.removesuffix(of) for of in subjects if name.endswith(of)), name) for name in alarms}
    assert kinds | {"monitor-missing"} == set(drill)
    artificial = {alarm for alarm, test in drill.items() if test.artificial}
    assert artificial == {"monitor-missing", "pack-objects", "raw-tables", "stale-objects"}


def test_an_alarm_of_a_composite_alarm_sends_no_message_itself(cloud, messages):
    composites = cloud.client("cloudwatch").describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
    rules = " ".join(alarm["AlarmRule"] for alarm in composites)
    sent = Counter(message["AlarmName"] for _, message in messages.all())
    assert not [alarm for alarm in sent if f'ALARM("{alarm}")' in rules]


def test_the_dashboard_exists(cloud):
    dashboard = cloud.client("cloudwatch").get_dashboard(DashboardName=cloud.outputs()["DashboardName"])
    assert len(json.loads(dashboard["DashboardBody"])["widgets"]) > 10
