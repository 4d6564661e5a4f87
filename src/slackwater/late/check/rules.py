"""The rules that decide about a day: the first rule of `RULES` that applies decides, and nothing changes it later.

`python -m slackwater.late.check.rules` prints the table of docs/late-data.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.errors import DayChanged, ObjectMissing
from slackwater.late.check import reasons
from slackwater.late.check.facts import TRANSIENT_ERRORS, DayFacts
from slackwater.late.decision import MAX_FAILURES, DayDecision, DecisionFigures, DecisionRule, LateDecision


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: what it decides about the days that it applies to.

    A rule is asked only if no earlier one applies, so `applies` and `reason` may rely on that.
    """

    name: DecisionRule
    decision: LateDecision
    when: str
    """The sentence of docs/late-data.md."""
    applies: Callable[[DayFacts], bool]
    reason: Callable[[DayFacts], tuple[str, ...]]


_HOLD, _IGNORE, _DEFER, _RERUN = LateDecision.HOLD, LateDecision.IGNORE, LateDecision.DEFER, LateDecision.RERUN


def _is_kept(facts: DayFacts) -> bool:
    """Return whether the decision to keep the version counts: the version is known, and something would change it."""
    return facts.is_kept and not facts.is_outcome_unknown and (facts.audit_holds or facts.would_run)


def _is_too_expensive(facts: DayFacts) -> bool:
    limits, most = facts.cooled_limits, facts.worth_usd
    if limits is None or limits.price is None or most is None or limits.price <= most:
        return False
    # The new definition would run the day without its late data too.
    is_due_anyway = facts.is_outcome_unknown or facts.needs_person or facts.reruns_definition
    return facts.inputs.is_grown and not facts.inputs.aged and not is_due_anyway


def _is_cooling_down(facts: DayFacts) -> bool:
    limits, end = facts.cooled_limits, facts.cool_down_end
    return limits is not None and end is not None and limits.now < end


def _is_over_budget(facts: DayFacts) -> bool:
    limits = facts.counted_limits
    if limits is None or limits.policy.budget_per_day is None:
        return False
    _, spent = facts.other_reruns
    # Without the second condition, cheaper days would use up the budget of each calendar day before an earlier one.
    is_spent = limits.earlier_waits or spent + (limits.price or 0.0) > limits.policy.budget_per_day
    return reasons.exceeds_budget(limits) or is_spent


RULES = (
    Rule(
        name=DecisionRule.CHANGING,
        decision=_HOLD,
        when="files or objects of the day kept changing while they were listed; the next check decides",
        applies=lambda facts: isinstance(facts.error, (DayChanged, ObjectMissing)),
        reason=lambda facts: (f"changed during the check: {facts.error}: the next check decides",),
    ),
    Rule(
        name=DecisionRule.UNREADABLE,
        decision=_HOLD,
        when="the day cannot be checked because of an error, such as an object that the receiver has not written or a "
        "damaged manifest",
        applies=lambda facts: facts.error is not None,
        reason=lambda facts: (f"cannot be checked: {facts.error}",),
    ),
    Rule(
        name=DecisionRule.RUNNING,
        decision=_IGNORE,
        when="a run of the day is active",
        applies=lambda facts: facts.is_running,
        reason=reasons.running,
    ),
    Rule(
        name=DecisionRule.CURRENT,
        decision=_IGNORE,
        when="the day has not ended yet",
        applies=lambda facts: facts.is_current,
        reason=lambda _: ("the day has not ended yet",),
    ),
    Rule(
        name=DecisionRule.ROLLED_BACK,
        decision=_HOLD,
        when="a person has published an earlier version again ([versions](versions.md))",
        applies=lambda facts: facts.is_rolled_back,
        reason=reasons.of_hold,
    ),
    Rule(
        name=DecisionRule.NEVER_PUBLISHED,
        decision=_IGNORE,
        when="the day has no published run",
        applies=lambda facts: facts.record.published is None,
        reason=reasons.never_published,
    ),
    Rule(
        name=DecisionRule.MANIFEST_GONE,
        decision=_HOLD,
        when="the input manifest of the published run is gone, so its inputs are unknown",
        applies=lambda facts: facts.compared is None,
        reason=reasons.manifest_gone,
    ),
    Rule(
        name=DecisionRule.KEPT,
        decision=_IGNORE,
        when="a person keeps the published version as long as the inputs are the same",
        applies=_is_kept,
        reason=reasons.kept,
    ),
    Rule(
        name=DecisionRule.AUDIT,
        decision=_HOLD,
        when="the rows of the latest attempt did not pass the [audit](#the-audit) or a rule of `data_quality`, and a "
        "run would have the same inputs and definition",
        applies=lambda facts: facts.audit_holds,
        reason=reasons.of_hold,
    ),
    Rule(
        name=DecisionRule.VANISHED,
        decision=_HOLD,
        when="objects that the published run has read are gone",
        applies=lambda facts: (
            not facts.is_released
            and any(item.on_removed is None for source in facts.inputs.rerun_inputs for item in source.lost)
        ),
        reason=reasons.lost,
    ),
    Rule(
        name=DecisionRule.REMOVED,
        decision=_HOLD,
        when="the partner has removed files that the published run has read, and `on_removed` is `hold`",
        applies=lambda facts: not facts.is_released and any(source.lost for source in facts.inputs.rerun_inputs),
        reason=reasons.lost,
    ),
    Rule(
        name=DecisionRule.SHRANK,
        decision=_HOLD,
        when="a changed file has fewer rows of the day than before",
        applies=lambda facts: not facts.is_released and facts.inputs.is_lost,
        reason=reasons.lost,
    ),
    Rule(
        name=DecisionRule.TABLE_CHANGED,
        decision=_HOLD,
        when="a day of another pipeline has changed, and the table has "
        "[`on_change: hold`](pipelines.md#days-of-other-pipelines)",
        applies=lambda facts: not facts.is_released and facts.inputs.is_table_held,
        reason=reasons.table_changed,
    ),
    Rule(
        name=DecisionRule.REPEATED,
        decision=_HOLD,
        when="a table has changed, and changed tables have "
        "[run the day again](pipelines.md#cycles-that-validation-cannot-see) ten times within 24 hours",
        applies=lambda facts: not facts.is_released and facts.is_repeated,
        reason=reasons.repeated,
    ),
    Rule(
        name=DecisionRule.FAILED,
        decision=_HOLD,
        when="the day would run again, but its last three attempts failed with the same inputs and definition",
        applies=lambda facts: facts.would_run and len(facts.inputs.failed) >= MAX_FAILURES,
        reason=reasons.failed,
    ),
    Rule(
        name=DecisionRule.MOVED_HOURS,
        decision=_HOLD,
        when="the day would run again, but [the timezone has changed](#a-new-definition): its hours are not those of "
        "the days around it",
        applies=lambda facts: (
            facts.would_run
            and not facts.is_released
            and facts.inputs.definition is not None
            and facts.inputs.definition.moves_hours
        ),
        reason=reasons.moved_hours,
    ),
    Rule(
        name=DecisionRule.TOO_EXPENSIVE,
        decision=_IGNORE,
        when="the re-run is estimated to cost more than `worth_per_percent` allows for the late data",
        applies=_is_too_expensive,
        reason=reasons.too_expensive,
    ),
    Rule(
        name=DecisionRule.COOL_DOWN,
        decision=_DEFER,
        when="the day would run again, but it was run again less than `cool_down_hours` before",
        applies=_is_cooling_down,
        reason=reasons.cool_down,
    ),
    Rule(
        name=DecisionRule.TOO_MANY,
        decision=_DEFER,
        when="today's checks have started `max_reruns_per_day` re-runs",
        applies=lambda facts: (
            (limits := facts.counted_limits) is not None and facts.other_reruns[0] >= limits.policy.max_reruns_per_day
        ),
        reason=reasons.too_many,
    ),
    Rule(
        name=DecisionRule.OVER_BUDGET,
        decision=_DEFER,
        when="the re-run is estimated to cost more than what is left of `budget_per_day`",
        applies=_is_over_budget,
        reason=reasons.over_budget,
    ),
    Rule(
        name=DecisionRule.OUTCOME_UNKNOWN,
        decision=_RERUN,
        when="a later attempt ended without an outcome and may have published, so the table may not hold the recorded "
        "version; no limit defers this repair, unless the last three attempts failed",
        applies=lambda facts: facts.is_outcome_unknown,
        reason=reasons.why_rerun,
    ),
    Rule(
        name=DecisionRule.RELEASED,
        decision=_RERUN,
        when="a person has released the day with these inputs, for example without the rows that are gone",
        applies=lambda facts: facts.needs_person,
        reason=reasons.why_rerun,
    ),
    Rule(
        name=DecisionRule.GROWN,
        decision=_RERUN,
        when="late data reaches a threshold of its source",
        applies=lambda facts: facts.inputs.is_grown,
        reason=reasons.why_rerun,
    ),
    Rule(
        name=DecisionRule.AGED,
        decision=_RERUN,
        when="late data is below every threshold, but the oldest of it has waited for `max_age_hours` of the pipeline, "
        "or `late_max_age_hours` of its source",
        applies=lambda facts: facts.inputs.is_late,
        reason=reasons.why_rerun,
    ),
    Rule(
        name=DecisionRule.NEW_DEFINITION,
        decision=_RERUN,
        when="the definition has changed, and [`on_definition`](#a-new-definition) is `rerun`",
        applies=lambda facts: facts.reruns_definition,
        reason=reasons.why_rerun,
    ),
    Rule(
        name=DecisionRule.BELOW,
        decision=_IGNORE,
        when="there is late data, below every threshold",
        applies=lambda facts: bool(facts.inputs.late),
        reason=reasons.below,
    ),
    Rule(
        name=DecisionRule.TABLE_NOTIFIED,
        decision=_IGNORE,
        when="only days of other pipelines have changed, and a table has [`on_change: notify`](#changed-tables)",
        applies=lambda facts: bool(facts.inputs.changed_tables("notify")),
        reason=reasons.table_notified,
    ),
    Rule(
        name=DecisionRule.TABLE_IGNORED,
        decision=_IGNORE,
        when="only days of other pipelines have changed, and their tables have `on_change: ignore`",
        applies=lambda facts: bool(facts.inputs.changed_tables("ignore")),
        reason=reasons.table_ignored,
    ),
    Rule(
        name=DecisionRule.DEFINITION_KEPT,
        decision=_IGNORE,
        when="there is no new data, but the definition has changed, and [`on_definition`](#a-new-definition) is `keep`",
        applies=lambda facts: facts.inputs.definition is not None,
        reason=reasons.new_definition,
    ),
    Rule(
        name=DecisionRule.UNCHANGED,
        decision=_IGNORE,
        when="there is no new data",
        applies=lambda _: True,
        reason=lambda _: ("no new data since the published run",),
    ),
)

# These decide before today's re-runs are counted.
_UNCOUNTED = frozenset({DecisionRule.TOO_EXPENSIVE, DecisionRule.COOL_DOWN})
_TABLES = frozenset({DecisionRule.TABLE_NOTIFIED, DecisionRule.TABLE_IGNORED})


def rule_of(facts: DayFacts) -> Rule:
    """Return the first rule that applies to the day."""
    return next(rule for rule in RULES if rule.applies(facts))


def decide(facts: DayFacts) -> DayDecision:
    """Return the decision about the day by the first rule that applies, with its reasons and numbers."""
    rule, record, inputs = rule_of(facts), facts.record, facts.compared
    run = record.published.run if record.published else None
    compared: dict[str, Any] = {}
    if inputs:
        compared = {
            "sources": inputs.differences,
            "figures": _figures(facts, rule),
            "ages_at": inputs.ages_at,
            "table_changes": inputs.table_changes,
            "new_definition": inputs.definition.lines if inputs.definition else (),
            "late_inputs": inputs.late_inputs,
        }
    return DayDecision(
        pipeline=record.pipeline,
        date=record.date,
        decision=rule.decision,
        rule=rule.name,
        reasons=rule.reason(facts),
        run_id=run.run_id if run else None,
        attempt=run.attempt if run else None,
        frozen_at=facts.frozen_at,
        notification_due=record.notification_due,
        error_may_pass=isinstance(facts.error, TRANSIENT_ERRORS),
        **compared,
    )


def _figures(facts: DayFacts, rule: Rule) -> DecisionFigures:
    """Return the numbers behind the decision, with those of the limits if they were asked."""
    figures = facts.amounts(facts.inputs.differences if rule.name in _TABLES else facts.inputs.rerun_inputs)
    limits = facts.limits
    if limits is None:
        return figures
    update: dict[str, object] = {"estimated_usd": limits.price, "worth_usd": facts.worth_usd}
    if rule.name not in _UNCOUNTED:
        count, spent = facts.other_reruns
        update |= {"reruns": count, "max_reruns": limits.policy.max_reruns_per_day}
        update |= {"spent_usd": spent, "budget_usd": limits.policy.budget_per_day}
    if rule.decision is LateDecision.RERUN:
        update["position"] = limits.position
    return figures.model_copy(update={**update, "not_before": _not_before(facts, rule)})


def _not_before(facts: DayFacts, rule: Rule) -> datetime | None:
    """Return from when on a deferred day may run again; None if no calendar day has such a budget."""
    if facts.limits is None or rule.decision is not LateDecision.DEFER:
        return None
    if rule.name is DecisionRule.COOL_DOWN:
        return facts.cool_down_end
    is_too_expensive = rule.name is DecisionRule.OVER_BUDGET and reasons.exceeds_budget(facts.limits)
    return None if is_too_expensive else facts.limits.tomorrow


def rules_table() -> str:
    """Return the table of docs/late-data.md: the rules in order."""
    lines = ["| Decision | Rule | When |", "|---|---|---|"]
    lines += [f"| `{rule.decision}` | `{rule.name}` | {rule.when} |" for rule in RULES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(rules_table())
