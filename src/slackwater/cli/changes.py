"""Texts about definitions whose files differ from what is deployed, and about what their deployment changes."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.cli.output import print_note
from slackwater.cli.running import backfill_command
from slackwater.client.workspace import uses_local_cloud
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.cli.command import Session
    from slackwater.client.plan import Plan

# Definitions that the one line names. `slackwater plan` lists all.
_NAMED = 3


def note_changes(session: Session, pipelines: Collection[str]) -> None:
    """Print one line if the project's files differ from what is deployed, with the days of these pipelines."""
    if plan := _changes(session, pipelines):
        print_note(changes_line(plan, session.folder), style="yellow")


def apply_changes(session: Session, pipelines: Collection[str]) -> None:
    """Deploy the definitions that have changed to a local cloud; elsewhere, only print the line about them.

    Removed definitions are left to `slackwater deploy`, which asks. Raises `DefinitionError` for a definition that does
    not fit the stored data, and `CloudError`.
    """
    plan = _changes(session, pipelines)
    if plan and (plan.removed or not uses_local_cloud()):
        print_note(changes_line(plan, session.folder), style="yellow")
    elif plan:
        from slackwater.deploy.definitions import deploy_changes

        parts = (
            f"deploying first (not with --no-deploy): {_named(plan)}",
            *_stale(plan, "stale then"),
            *_lacking(plan),
        )
        print_note("; ".join(parts))
        client = session.client
        uri = client.connection.deployment.project_uri
        deploy_changes(session.workspace, deployed=client.deployed, uri=uri, on_note=print_note)
        session.reconnect()


def _changes(session: Session, pipelines: Collection[str]) -> Plan | None:
    """Return the plan if there are changes, with the days of these pipelines."""
    client = session.client
    try:
        plan = client.plan(pipelines)
    except DefinitionError:
        raise  # with a wrong stored name, a command would not see what is published
    except SlackwaterError as error:
        # The command itself may not need what could not be read.
        print_note(f"whether the project's files are deployed is unknown: {error}", style="yellow")
        return None
    return plan if plan.changes else None


def changes_line(plan: Plan, project: Path | None) -> str:
    """Return which definitions differ from what is deployed, which days become stale, and the commands to apply it.

    `project` is the option `--project` of the commands.
    """
    parts = (f"the files differ from what is deployed: {_named(plan)}", *_stale(plan, "stale then"), *_lacking(plan))
    apply = "" if plan.lacking else f". To apply: {'; '.join(commands(plan, project))}"
    return f"{'; '.join(parts)}{apply}"


def _named(plan: Plan) -> str:
    named = [f"{change.file} {change.change}" for change in plan.changes[:_NAMED]]
    more = len(plan.changes) - len(named)
    return ", ".join([*named, f"{more} more"] if more else named)


def _stale(plan: Plan, name: str) -> list[str]:
    days = [f"{_at_least(dates)}{_days(dates)} of {pipeline}" for pipeline, dates in plan.stale.items()]
    return [f"{name}: {', '.join(days)}"] if days else []


def _at_least(dates: Sequence[str]) -> str:
    """Return `at least ` for days of which only the latest ones were read."""
    from slackwater.client.plan import NOTED_DAYS

    return "at least " if len(dates) >= NOTED_DAYS else ""


def _lacking(plan: Plan) -> list[str]:
    """Return a text for each pipeline whose rows lack columns of its table."""
    return [
        f"pipelines/{name}.yaml: the published table has the column{'s' if len(columns) > 1 else ''} "
        f"{', '.join(columns)}, which its rows lack: every day would fail "
        "(docs/pipelines.md#a-column-that-is-renamed-or-removed)"
        for name, columns in plan.lacking.items()
    ]


def commands(plan: Plan, project: Path | None, *, environment: str | None = None) -> list[str]:
    """Return the commands that deploy the files, if they differ, and that run the stale days again.

    `project` and `environment` are the options of the command. Days that a person has kept do not run.
    """
    folder = ["--project", str(project)] if project else []
    deploy = ["slackwater", "deploy", *folder, *(["--environment", environment] if environment else [])]
    again = [
        backfill_command(name, dates[0], dates[-1], parallel=1, stale=True, project=project)
        if len(dates) > 1
        else shlex.join(["slackwater", "run", name, "--date", *dates, *folder])
        for name, all_dates in {**plan.stale, **plan.older}.items()
        for dates in _ranges(all_dates, plan.kept.get(name, ()))
    ]
    return [*([shlex.join(deploy)] if plan.changes else []), *again]


def _ranges(dates: Sequence[str], kept: Sequence[str]) -> list[list[str]]:
    """Return the dates in groups of which none has a kept day between its first and its last one."""
    groups: dict[int, list[str]] = {}
    for date in dates:
        groups.setdefault(sum(each < date for each in kept), []).append(date)
    return list(groups.values())


def plan_lines(plan: Plan) -> list[str]:
    """Return a line for each definition that a deployment changes, then for the days that become stale."""
    lines = [] if plan.changes else ["the definitions are those that are deployed"]
    for change in plan.changes:
        effect = ""
        if change.folder == "pipelines" and (lost := plan.lost.get(change.name)):
            held = f" and {counted(lost.on_hold, 'day')} on hold" if lost.on_hold else ""
            effect = (
                f": its table with {counted(lost.published, 'day')}{held} and its history stay, and no command reaches "
                "them"
            )
        elif change.folder == "sources" and change in plan.removed:
            effect = ": its events stay, and no command reaches them"
        elif change.change == "renamed":
            lines.append(f"  renamed  {change.renamed_from} -> {change.name}: keeps its table, history and holds")
            continue
        elif change.renamed_from:
            meant = f" (did you mean {change.same_as}?)" if change.same_as else ""
            effect = f": renamed_from: no pipeline {change.renamed_from} is deployed{meant}. Its table gets this name"
        elif change.same_as:
            effect = f": {change.same_as} under another name, without its days (`renamed_from` keeps them)"
        lines.append(f"  {change.change:<8} {change.file}{effect}")
    lines += [f"  stale    {_days(dates)} of {name}" for name, dates in plan.stale.items()]
    lines += [
        f"  stale    {_at_least(dates)}{_days(dates)} of {name}, from an earlier definition"
        for name, dates in plan.older.items()
    ]
    lines += [f"  kept     {_days(dates)} of {name}, which a person has kept" for name, dates in plan.kept.items()]
    lines += [f"  fails    {text}" for text in _lacking(plan)]
    lines += [f"  refused  {text}" for text in plan.refused]
    return lines


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as its JSON document."""
    return {
        "changes": [{**change._asdict(), "file": change.file} for change in plan.changes],
        "stale": {**plan.stale, **plan.older},
        "kept": plan.kept,
        "lost": {name: days._asdict() for name, days in plan.lost.items()},
        "lacking": plan.lacking,
        "refused": plan.refused,
    }


def _days(dates: Sequence[str]) -> str:
    """Return how many days there are, and the first and the last one."""
    ends = dict.fromkeys((dates[0], dates[-1]))
    return f"{counted(len(dates), 'published day')} ({' to '.join(ends)})"
