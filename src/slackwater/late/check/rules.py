"""The rules that decide about a day: the first one of `RULES` that applies decides, and nothing changes it later.

`python -m slackwater.late.check.rules` prints the table of docs/late-data.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from slackwater.errors import DayChanged, ObjectMissing
from slackwater.late.amounts import changed_file_count, late_percent
from slackwater.late.check import reasons
from slackwater.late.check.facts import TRANSIENT_ERRORS, DayFacts
from slackwater.late.decision import MAX_FAILURES, DayDecision, DecisionFigures, DecisionRule, LateDecision


class Rule(NamedTuple):
    """One rule: what it decides about the days that it applies to.

    A rule is asked only if no earlier one applies, so `applies` and `reason` may rely on that.
    """

    name: DecisionRule
    decision: LateDecision
    applies: Callable[[DayFacts], bool]
    reason: Callable[[DayFacts], tuple[str, ...]]


_HOLD, _IGNORE, _DEFER, _RERUN = LateDecision.HOLD, LateDecision.IGNORE, LateDecision.DEFER, LateDecision.RERUN


def _is_too_expensive(facts: DayFacts) -> bool:
    limits, most = facts.cooled_limits, facts.worth_usd
    if limits is None or limits.price is None or most is None or limits.price <= most:
        return False
    return facts.inputs.is_grown and not facts.inputs.aged and not facts.is_due_anyway


def _is_incomplete(facts: DayFacts) -> bool:
    # No check looks at a day before the window again, so a decision about one must not wait.
    if not facts.is_in_window or facts.inputs.incomplete_until is None:
        return False
    return facts.inputs.is_grown and not facts.inputs.aged and not facts.is_due_anyway


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
        DecisionRule.CHANGING,
        _HOLD,
        lambda facts: isinstance(facts.error, (DayChanged, ObjectMissing)),
        lambda facts: (f"changed during the check: {facts.error}: the next check decides",),
    ),
    Rule(
        DecisionRule.UNREADABLE,
        _HOLD,
        lambda facts: facts.error is not None,
        lambda facts: (f"cannot be checked: {facts.error}",),
    ),
    Rule(DecisionRule.RUNNING, _IGNORE, lambda facts: facts.is_running, reasons.running),
    Rule(DecisionRule.CURRENT, _IGNORE, lambda facts: facts.is_current, reasons.current),
    Rule(DecisionRule.ROLLED_BACK, _HOLD, lambda facts: facts.is_rolled_back, reasons.of_hold),
    Rule(DecisionRule.NEVER_PUBLISHED, _IGNORE, lambda facts: facts.record.published is None, reasons.never_published),
    Rule(DecisionRule.MANIFEST_GONE, _HOLD, lambda facts: facts.compared is None, reasons.manifest_gone),
    Rule(DecisionRule.KEPT, _IGNORE, lambda facts: facts.is_kept, reasons.kept),
    Rule(DecisionRule.AUDIT, _HOLD, lambda facts: facts.audit_holds, reasons.of_hold),
    Rule(DecisionRule.INVALID, _HOLD, lambda facts: bool(facts.held_verdicts), reasons.invalid),
    Rule(
        DecisionRule.VANISHED,
        _HOLD,
        lambda facts: (
            not facts.is_released
            and any(item.on_removed is None for source in facts.inputs.rerun_inputs for item in source.lost)
        ),
        reasons.lost,
    ),
    Rule(
        DecisionRule.REMOVED,
        _HOLD,
        lambda facts: not facts.is_released and any(source.lost for source in facts.inputs.rerun_inputs),
        reasons.lost,
    ),
    Rule(DecisionRule.SHRANK, _HOLD, lambda facts: not facts.is_released and facts.inputs.is_lost, reasons.lost),
    Rule(
        DecisionRule.TABLE_CHANGED,
        _HOLD,
        lambda facts: not facts.is_released and facts.inputs.is_table_held,
        reasons.table_changed,
    ),
    Rule(DecisionRule.REPEATED, _HOLD, lambda facts: not facts.is_released and facts.is_repeated, reasons.repeated),
    Rule(
        DecisionRule.FAILED,
        _HOLD,
        lambda facts: facts.would_run and len(facts.inputs.failed) >= MAX_FAILURES,
        reasons.failed,
    ),
    Rule(
        DecisionRule.MOVED_HOURS,
        _HOLD,
        lambda facts: (
            facts.would_run
            and not facts.is_released
            and facts.inputs.definition is not None
            and facts.inputs.definition.moves_hours
        ),
        reasons.moved_hours,
    ),
    Rule(DecisionRule.TOO_EXPENSIVE, _IGNORE, _is_too_expensive, reasons.too_expensive),
    Rule(DecisionRule.INCOMPLETE, _DEFER, _is_incomplete, reasons.incomplete),
    Rule(DecisionRule.COOL_DOWN, _DEFER, _is_cooling_down, reasons.cool_down),
    Rule(
        DecisionRule.TOO_MANY,
        _DEFER,
        lambda facts: (
            (limits := facts.counted_limits) is not None and facts.other_reruns[0] >= limits.policy.max_reruns_per_day
        ),
        reasons.too_many,
    ),
    Rule(DecisionRule.OVER_BUDGET, _DEFER, _is_over_budget, reasons.over_budget),
    Rule(DecisionRule.OUTCOME_UNKNOWN, _RERUN, lambda facts: facts.is_outcome_unknown, reasons.why_rerun),
    Rule(DecisionRule.RELEASED, _RERUN, lambda facts: facts.needs_person, reasons.why_rerun),
    Rule(DecisionRule.INVALID_READ, _RERUN, lambda facts: bool(facts.inputs.repaired), reasons.why_rerun),
    Rule(DecisionRule.GROWN, _RERUN, lambda facts: facts.inputs.is_grown, reasons.why_rerun),
    Rule(DecisionRule.AGED, _RERUN, lambda facts: facts.inputs.is_late, reasons.why_rerun),
    Rule(DecisionRule.NEW_DEFINITION, _RERUN, lambda facts: facts.reruns_definition, reasons.why_rerun),
    Rule(DecisionRule.BELOW, _IGNORE, lambda facts: bool(facts.inputs.late), reasons.below),
    Rule(
        DecisionRule.TABLE_NOTIFIED,
        _IGNORE,
        lambda facts: bool(facts.inputs.changed_tables("notify")),
        reasons.table_notified,
    ),
    Rule(
        DecisionRule.TABLE_IGNORED,
        _IGNORE,
        lambda facts: bool(facts.inputs.changed_tables("ignore")),
        reasons.table_ignored,
    ),
    Rule(
        DecisionRule.DEFINITION_KEPT, _IGNORE, lambda facts: facts.inputs.definition is not None, reasons.new_definition
    ),
    Rule(DecisionRule.UNCHANGED, _IGNORE, lambda _: True, lambda _: ("no new data since the published run",)),
)

# These decide before today's re-runs are counted.
_UNCOUNTED = frozenset({DecisionRule.TOO_EXPENSIVE, DecisionRule.COOL_DOWN})
_TABLES = frozenset({DecisionRule.TABLE_NOTIFIED, DecisionRule.TABLE_IGNORED})
# Phrases of the table in docs/late-data.md, and what they link to.
_LINKS = {
    "an earlier version": "versions.md",
    "the audit": "late-data/days-on-hold.md#the-audit",
    "`on_change: hold`": "pipelines/tables.md#days-of-other-pipelines",
    "run the day again": "pipelines/tables.md#cycles-that-validation-cannot-see",
    "the timezone has changed": "late-data/definitions-and-tables.md#a-new-definition",
    "`on_definition`": "late-data/definitions-and-tables.md#a-new-definition",
    "`on_change: notify`": "late-data/definitions-and-tables.md#changed-tables",
    "have reported": "completeness.md",
    "a verdict says": "verdicts.md",
    "`on_invalid`": "verdicts.md#published-days",
}


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
            "counts": inputs.counts,
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
    inputs, limits = facts.inputs, facts.limits
    differences = inputs.differences if rule.name in _TABLES else inputs.rerun_inputs
    figures = DecisionFigures(
        late_rows=sum(item.unprocessed.rows for item in differences),
        late_percent=late_percent(differences),
        late_bytes=sum(item.unprocessed.bytes for item in differences),
        changed_files=sum(changed_file_count(item) for item in differences),
        oldest_wait_hours=max(inputs.waits.values(), default=None),
        max_age_hours=min((it.hours for name, it in inputs.max_ages.items() if name in inputs.waits), default=None),
        is_aged=bool(inputs.aged),
        input_rows=inputs.rows,
        input_bytes=inputs.bytes,
        attempt=facts.attempt,
        last_rerun_at=inputs.last_rerun_at,
        not_before=inputs.incomplete_until if rule.name is DecisionRule.INCOMPLETE else None,
    )
    if limits is None:
        return figures
    update: dict[str, object] = {"estimated_usd": limits.price, "worth_usd": facts.worth_usd}
    if rule.name not in _UNCOUNTED:
        count, spent = facts.other_reruns
        update |= {"reruns": count, "max_reruns": limits.policy.max_reruns_per_day}
        update |= {"spent_usd": spent, "budget_usd": limits.policy.budget_per_day}
    if rule.decision is LateDecision.RERUN:
        update["position"] = limits.position
    elif rule.name is DecisionRule.COOL_DOWN:
        update["not_before"] = facts.cool_down_end
    # No calendar day has the budget for a re-run that costs more than a whole one.
    elif rule.name is DecisionRule.TOO_MANY or (
        rule.name is DecisionRule.OVER_BUDGET and not reasons.exceeds_budget(limits)
    ):
        update["not_before"] = limits.tomorrow
    return figures.model_copy(update=update)


def rules_table() -> str:
    """Return the table of docs/late-data.md: the rules in order."""
    table = "| Decision | Rule | When |\n|---|---|---|\n"
    table += "".join(f"| `{rule.decision}` | `{rule.name}` | {rule.name.when} |\n" for rule in RULES)
    for phrase, target in _LINKS.items():
        table = table.replace(phrase, f"[{phrase}]({target})")
    return table


if __name__ == "__main__":
    sys.stdout.write(rules_table())
