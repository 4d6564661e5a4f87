"""What a client returns: the types of its results, for annotations, and the texts about them that people read."""

from __future__ import annotations

from slackwater.aws.executions.state_machines import ExecutionView
from slackwater.client.days.executions import OnProgress
from slackwater.client.days.stop import StoppedRun, StoppedWait
from slackwater.late.comparison import Comparison
from slackwater.late.decision import CheckReport, DayDecision, LateDecision
from slackwater.late.report.sections import report_sections
from slackwater.late.suggest import Suggestion
from slackwater.lineage.graph import DayRead, Lineage, Reader, SourceRead, VersionLineage
from slackwater.receiver.pull.file_cache import FileEntry
from slackwater.receiver.pull.rejects_reader import RejectedDay, RejectedEventOnDay
from slackwater.receiver.pull.removed_files import DoubtfulFiles
from slackwater.receiver.push.tokens import Token
from slackwater.runs.inputs.unstored_files import describe_unstored
from slackwater.runs.outputs import RunSteps, Version
from slackwater.runs.period import period_kind, row_condition
from slackwater.runs.record import DayRecord, RunRecord
from slackwater.state.verdicts import Subject, Verdict, describe_verdicts

__all__ = [
    "CheckReport",
    "Comparison",
    "DayDecision",
    "DayRead",
    "DayRecord",
    "DoubtfulFiles",
    "ExecutionView",
    "FileEntry",
    "LateDecision",
    "Lineage",
    "OnProgress",
    "Reader",
    "RejectedDay",
    "RejectedEventOnDay",
    "RunRecord",
    "RunSteps",
    "SourceRead",
    "StoppedRun",
    "StoppedWait",
    "Subject",
    "Suggestion",
    "Token",
    "Verdict",
    "Version",
    "VersionLineage",
    "describe_unstored",
    "describe_verdicts",
    "period_kind",
    "report_sections",
    "row_condition",
]
