"""Each alarm has a runbook, and each runbook an alarm, with the same severity as in the page for operators."""

from __future__ import annotations

import re

import pytest

from infra.app import ROOT
from infra.constructs.alarms.alarm_rules import RULES
from tests.infra.assembly import Assembly
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

_RUNBOOKS = ROOT / "docs" / "runbooks"
_LINK = re.compile(r" Severity: (\w+)\. Prefix: slackwater\. Runbook: docs/runbooks/([\w-]+)\.md\.$")


@pytest.fixture(scope="module")
def severities(scheduled: Assembly) -> dict[str, str]:
    """The severity of each alarm, by its name without the pipeline or source."""
    found = {}
    for properties in scheduled.properties("AWS::CloudWatch::Alarm").values():
        link = _LINK.search(properties["AlarmDescription"])
        assert link, properties["AlarmName"]
        severity, name = link.groups()
        assert re.fullmatch(rf"slackwater-{name}(-[\w-]+)?", properties["AlarmName"])
        found[name] = severity
    # Some alarms exist only for definitions and settings that the example does not have.
    return found | {rule.name: rule.severity.value for rule in RULES}


def test_each_alarm_has_a_runbook_and_each_runbook_an_alarm(severities: dict[str, str]) -> None:
    assert sorted(path.stem for path in _RUNBOOKS.glob("*.md")) == sorted(["README", *severities])


def test_the_index_of_the_runbooks_names_each_alarm_with_its_severity(severities: dict[str, str]) -> None:
    index = (_RUNBOOKS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`slackwater-(.+)`\]\((.+)\.md\) \| (\w+) \| \S.* \|$", index, re.M)
    assert {name: severity for _, name, severity in rows} == severities
    titles = {name: (_RUNBOOKS / f"{name}.md").read_text(encoding="utf-8").splitlines()[0] for name in severities}
    assert {name: f"# slackwater-{alarm}" for alarm, name, _ in rows} == titles


def test_a_runbook_states_the_severity_of_its_alarm(severities: dict[str, str]) -> None:
    for name, severity in severities.items():
        assert f"\nSeverity: {severity}.\n" in (_RUNBOOKS / f"{name}.md").read_text(encoding="utf-8"), name


def test_the_page_for_operators_states_the_severity_and_links_the_runbook_of_each_alarm(
    severities: dict[str, str],
) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `slackwater-([\w-]+?)(?:-PIPELINE|-SOURCE|-MACHINE)?` \|.*\| (page|warning) \| (.*) \|$", page, re.M
    )
    expected = {(name, severity, f"[{name}](runbooks/{name}.md)") for name, severity in severities.items()}
    assert set(rows) == expected


# The argument of an AWS command that names a resource, and the type of the resource with the property that has it.
_NAMES = {
    r"--queue-name (\S+)": ("AWS::SQS::Queue", "QueueName"),
    r"aws logs tail /aws/lambda/(\S+)": ("AWS::Lambda::Function", "FunctionName"),
    r"aws logs tail (/aws/vendedlogs/\S+)": ("AWS::Logs::LogGroup", "LogGroupName"),
    r"--group-name (\S+)": ("AWS::Scheduler::ScheduleGroup", "Name"),
    r"get-schedule .*--name (\S+)": ("AWS::Scheduler::Schedule", "Name"),
    r"--alarm-name(?:s|-prefix) (\S+)": ("AWS::CloudWatch::Alarm", "AlarmName"),
}
_SUBJECTS = {"PIPELINE": "daily_delays", "SOURCE": "flights", "MACHINE": "backfill"}


def test_the_resources_that_aws_commands_of_runbooks_name_exist(assembly: Assembly, scheduled: Assembly) -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in _RUNBOOKS.glob("*.md"))
    for pattern, (kind, key) in _NAMES.items():
        named = {re.sub("|".join(_SUBJECTS), lambda of: _SUBJECTS[of[0]], name) for name in re.findall(pattern, pages)}
        assert named, pattern
        created = [
            resource_name(resource["Properties"].get(key, ""))
            # One with EventBridge Scheduler, and one with all alarms.
            for templates in (assembly, scheduled)
            for resource in templates.resources(kind).values()
        ]
        assert {name for name in named if not any(other.startswith(name) for other in created)} == set()
