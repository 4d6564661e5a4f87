"""Decides about a published day from the inputs that its run has read and those that it has now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slackwater.late.check.attempts import attempts_after_published, last_rerun_at, latest_failures, table_reruns
from slackwater.late.check.decision import MAX_TABLE_RERUNS, DayDecision, DecisionRule, LateDecision
from slackwater.late.check.describe import DefinitionChange
from slackwater.late.check.evaluate_day import SourceThresholds, evaluate_day
from slackwater.late.check.table_changes import notified_changes
from slackwater.late.check.wait import late_waits, max_ages, next_age
from slackwater.late.ledger.entry import definition_input, late_inputs
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.holds import decision_about, describe_moved_hours
from slackwater.runs.inputs.difference import SourceDifference, difference
from slackwater.runs.inputs.input_definition import described_changes, input_definition, shared_inputs
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.record import DayRecord, ResolutionAction, RunRecord
from slackwater.runs.table import RunTable


@dataclass(frozen=True, kw_only=True)
class PublishedDay:
    """A published day that is not running, with its inputs."""

    record: DayRecord
    run: RunRecord | None
    """The published run; None if its record is missing."""
    before: InputManifest
    """What the published run has read."""
    now: InputManifest

    def decide(
        self,
        definition: Pipeline,
        *,
        project: Project,
        table: RunTable,
        files: FileCache,
        now: datetime,
        is_in_window: bool,
    ) -> DayDecision:
        """Return the decision, with the late inputs of the day. Raises `CloudError`.

        Only days of the window run again for a new definition.
        """
        reads, run = input_definition(definition), self.run
        before, present = shared_inputs(self.before, self.now, former=run.reads if run else None, present=reads)
        differences = difference(before, present, sources=reads.inputs)
        changed = definition_change(run, definition, project.written_digest(definition.pipeline))
        if changed and not is_in_window:
            changed = changed._replace(reruns=False)
        later = attempts_after_published(self.record, table)
        waits, ages = late_waits(before, present, definition, files=files, now=now), max_ages(definition, project)
        decision = evaluate_day(
            self.record,
            differences,
            thresholds=_thresholds(definition, project),
            tables=definition.published_tables,
            inputs=self.now.digest,
            frozen_at=run.frozen_at if run else None,
            failed=latest_failures(later, self.now.digest, project),
            last_rerun_at=last_rerun_at(run, later),
            waits=waits,
            max_ages=ages,
            definition=changed,
            is_repeated=self._is_repeated(definition, differences, table, now),
        )
        if changed and changed.moves_hours:
            decision = self._hold_moved_hours(decision)
        late = late_inputs(before, present, sources=reads.inputs)
        update: dict[str, object] = {
            "table_changes": notified_changes(before, present, definition.published_tables),
            "ages_at": next_age(waits, ages, now=now),
        }
        if changed:
            late = (*late, definition_input(changed.digest, at=self.now.frozen_at))
            update["new_definition"] = changed.lines
            # A run would also read what only the new definition names.
            update["figures"] = decision.figures and decision.figures.model_copy(update={"input_bytes": self.now.bytes})
        return decision.model_copy(update={**update, "late_inputs": late})

    def _hold_moved_hours(self, decision: DayDecision) -> DayDecision:
        """Return the decision, but hold a day that would run again, unless a person has released it with its inputs."""
        if decision.decision is not LateDecision.RERUN:
            return decision
        if decision_about(self.record, self.now.digest) is ResolutionAction.RELEASED:
            return decision
        reasons = (*decision.reasons, describe_moved_hours(decision.pipeline, decision.date))
        held = {"decision": LateDecision.HOLD, "rule": DecisionRule.MOVED_HOURS, "reasons": reasons}
        return decision.model_copy(update=held)

    def _is_repeated(
        self, definition: Pipeline, differences: tuple[SourceDifference, ...], table: RunTable, now: datetime
    ) -> bool:
        """Return whether a changed table would run the day again, as tables have done too often."""
        tables = set(definition.tables).intersection(definition.deciding_inputs)
        if not any(source.changes for source in differences if source.source in tables):
            return False
        hold = self.record.hold
        if hold and hold.rule == DecisionRule.REPEATED:
            return True
        return table_reruns(self.record, table, tables, now=now) >= MAX_TABLE_RERUNS


def definition_change(run: RunRecord | None, definition: Pipeline, digest: str) -> DefinitionChange | None:
    """Return what differs between the definition of the published run and the present one; None if nothing is known.

    `digest` is `Project.written_digest` of the present one.
    """
    if run is None or run.reads is None or run.definition == digest:
        return None
    lines = described_changes(run.reads, input_definition(definition))
    return DefinitionChange(
        lines=lines,
        digest=digest,
        reruns=definition.late.on_definition == "rerun",
        moves_hours=run.reads.timezone != definition.timezone,
    )


def _thresholds(definition: Pipeline, project: Project) -> dict[str, SourceThresholds]:
    own = f"pipeline {definition.pipeline}"
    origins = dict.fromkeys(definition.late.thresholds, own)
    return {
        name: SourceThresholds(definition.thresholds(project.source(name)), origins.get(name, "its source"))
        for name in definition.sources
    } | {name: SourceThresholds(definition.table_thresholds(name), own) for name in definition.tables}
