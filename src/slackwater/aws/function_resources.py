"""What several Lambda functions use, and what keeps connections or a cache between their calls."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger
from botocore.config import Config

from slackwater.aws.clients import AIRFLOW_CONFIG, CONFIG, SINGLE_CONFIG, Clients
from slackwater.aws.emf import put_metric
from slackwater.aws.function import best_effort, warn
from slackwater.aws.queue import MessageQueue, SqsEventQueue
from slackwater.aws.resources import Resources, utc_now
from slackwater.state.messages import hours_changed, listed_by_day
from slackwater.state.verdicts import Subject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from slackwater.aws.executions.airflow import AirflowEnvironment
    from slackwater.aws.lineage_requests import LineageRequests
    from slackwater.aws.table_maintenance import TableMaintenance
    from slackwater.aws.wake_requests import WakeRequests
    from slackwater.late.changes.outbox import Outbox
    from slackwater.late.ledger import Ledger
    from slackwater.lineage.receiver import LineageReceiver
    from slackwater.outbound.credentials import Secrets
    from slackwater.receiver.push.receive import Receiver
    from slackwater.receiver.push.redrive import Redriver
    from slackwater.receiver.push.request import EventsApi
    from slackwater.receiver.push.tokens import Tokens
    from slackwater.runs.cost_recorder import CostRecorder
    from slackwater.runs.periods.fold_periods import PeriodFolder
    from slackwater.runs.periods.live_windows import LiveWindows
    from slackwater.runs.pipeline_verdicts import PipelineVerdicts
    from slackwater.sources.partitions import Partition, UpdateTable
    from slackwater.state.facts import RejectedEvents, Report
    from slackwater.state.messages import HoursChanged
    from slackwater.state.verdicts import Verdict
    from slackwater.state.waits import Waits


# A listing makes several objects for each stored one, and keeps them: with the default of 700, the garbage collector
# takes two thirds of the time of 86,400 (docs/decisions/0057).
gc.set_threshold(100_000, 20, 20)


class FunctionResources(Resources):
    """The resources of a function, whose settings are its environment variables in lower case."""

    @cached_property
    def once(self) -> FunctionResources:
        """The same, but no request is repeated: for what a later call makes up for."""
        return FunctionResources(self.settings, Clients(SINGLE_CONFIG))

    @cached_property
    def arrivals(self) -> MessageQueue:
        """The queue of arrivals. The URL is empty if only the daily check finds late data."""
        return MessageQueue(self.clients("sqs"), self.settings.arrival_queue_url)

    @cached_property
    def state_messages(self) -> MessageQueue:
        """The queue of states."""
        return MessageQueue(self.clients("sqs"), self.settings.state_queue_url, "queue of states")

    def send_state(self, message: HoursChanged, *, seconds: int = 0) -> None:
        """Have the states of these hours computed after so many seconds. Raises `CloudError`."""
        self.state_messages([(message.model_dump_json(), seconds)])

    def fold_states(self, source: str, partitions: Collection[Partition]) -> None:
        """Have the states of hours computed from the listing. An error is only logged: the daily check asks again."""
        with best_effort("the states of hours wait for the next daily check", source=source):
            self.state_messages([(message.model_dump_json(), 0) for message in listed_by_day(source, partitions)])

    @cached_property
    def update_raw_table(self) -> UpdateTable:
        """Has the table of a source follow the listing."""
        from slackwater.aws.raw_table_updates import RawTableUpdates

        return RawTableUpdates(self.clients, self.settings.raw_tables_function)

    @cached_property
    def waits(self) -> Waits:
        """Lets runs wait for their inputs, and lets them go on."""
        from slackwater.aws.executions.task_tokens import TaskTokens
        from slackwater.runs.waits.days import ProjectDays
        from slackwater.state.waits import Waits

        return Waits(
            table=self.wait_table,
            tasks=TaskTokens(self.clients("stepfunctions")),
            days=ProjectDays(project=self.project, now=utc_now),
            evaluate=self.input_evaluator.evaluate,
        )

    def check_readers(self, subject: Subject, periods: Iterable[str], at: datetime) -> None:
        """Have the days of the windows checked that may have read periods with verdicts, given at this instant.

        A repeated call sends the same messages. Raises `CloudError`.
        """
        from slackwater.late.arrival_messages import day_deferred
        from slackwater.late.check.window_dates import in_windows
        from slackwater.runs.waits.days import ProjectDays

        now = utc_now()
        days = in_windows(self.project, ProjectDays(project=self.project, now=utc_now).that_read(subject, periods), now)
        # The clock of the command may be ahead of ours: the check would wait for it.
        due = min(at, now)
        self.arrivals([(day_deferred(*key, not_before=due).model_dump_json(), 0) for key in days])

    @cached_property
    def wake_requests(self) -> WakeRequests:
        """Has runs evaluated that wait for what this function stores."""
        from slackwater.aws.wake_requests import WakeRequests

        return WakeRequests(self.clients, self.settings.await_inputs_function)

    @cached_property
    def pipeline_verdicts(self) -> PipelineVerdicts:
        """Gives the verdicts of pipelines about their inputs."""
        from slackwater.runs.pipeline_verdicts import PipelineVerdicts

        return PipelineVerdicts(
            store=self.store,
            runs=self.run_table,
            table=self.verdict_table,
            wake=self.once.wake_requests.wake_verdict,
        )

    @cached_property
    def lineage_requests(self) -> LineageRequests:
        """Has events of OpenLineage sent. No function is named if the deployment has no receiver."""
        from slackwater.aws.lineage_requests import LineageRequests

        return LineageRequests(self.clients, getattr(self.settings, "lineage_function", ""))

    @cached_property
    def secrets(self) -> Secrets:
        """Credentials of other systems."""
        from slackwater.aws.secrets import CloudSecrets

        return CloudSecrets()

    def open_lineage_receiver(self) -> LineageReceiver:
        """Return the deployment's receiver of OpenLineage: a context manager that closes its connections.

        Raises what `Secrets.read` raises.
        """
        from slackwater.lineage.receiver import LineageReceiver
        from slackwater.outbound.guard import GuardedTransport, Outbound

        settings, secret = self.settings, self.settings.openlineage_secret
        return LineageReceiver(
            settings.openlineage_url,
            transport=GuardedTransport(Outbound.of(filter(None, settings.outbound_allow.split(",")))),
            credentials=self.secrets.read(secret) if secret else None,
        )

    @cached_property
    def airflow(self) -> AirflowEnvironment:
        """The REST API of the Airflow environment that is the scheduler of the deployment."""
        from slackwater.aws.executions.airflow import AirflowEnvironment

        return AirflowEnvironment(Clients(AIRFLOW_CONFIG)("mwaa"), self.settings.airflow_environment)

    @cached_property
    def outbox(self) -> Outbox:
        """Sends messages about changes."""
        from slackwater.aws.topic import SnsTopic
        from slackwater.late.changes.outbox import Outbox

        return Outbox(
            executions=self.state_machines,
            topic=SnsTopic(self.settings.change_topic),
            now=utc_now,
            put_metric=put_metric,
            warn=warn,
        )

    @cached_property
    def receiver(self) -> Receiver:
        """Receives pushed bodies."""
        from slackwater.receiver.push.receive import Receiver

        return Receiver(raw_writer=self.raw_writer, now=utc_now, put_rejected=self._put_rejected)

    @cached_property
    def redriver(self) -> Redriver:
        """Sends rejected events again."""
        from slackwater.receiver.push.redrive import Redriver

        return Redriver(receiver=replace(self.receiver, put_metric=put_metric))

    def put_report(self, report: Report) -> None:
        """Store a report, and have the states of its hours computed. Raises `CloudError`."""
        self.state_table.put_report(report)
        self.send_state(hours_changed(report.source, (start.replace(minute=0) for start in report.counts)))

    def _put_rejected(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        # Opened when it is used: the function that stores queued events rejects none, and does not know the table.
        self.state_table.put_rejected(source, rejected)
        self.send_state(hours_changed(source, rejected))

    def put_rejected_rows(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        """Store the rejected rows of a pulled file. Their states are computed when the file is committed."""
        super().put_rejected_rows(source, rejected)
        # The longest delay of SQS: as long as this function may run.
        self.send_state(hours_changed(source, rejected), seconds=900)

    @cached_property
    def accepted_tokens(self) -> Tokens:
        """Our own tokens, and those of the OIDC issuer if the deployment names one."""
        from slackwater.receiver.push.tokens import CachedTokens

        own, settings = CachedTokens(self.tokens), vars(self.settings)
        if "oidc_issuer" not in settings:
            return own
        # They add 0.2 s to a cold start, and only deployments with an issuer need them.
        from slackwater.outbound.guard import GuardedTransport, Outbound
        from slackwater.receiver.push.jwt_tokens import IssuerKeys, JwtTokens, TokensByFormat

        def log_refusal(reason: str) -> None:
            Logger().info("JSON Web Token refused", extra={"reason": reason})

        outbound = Outbound.of(filter(None, settings.get("outbound_allow", "").split(",")))
        keys = IssuerKeys(settings["oidc_issuer"], transport=GuardedTransport(outbound))
        issued = JwtTokens(keys, audience=settings.get("oidc_audience", ""), on_refused=log_refusal)
        return TokensByFormat(own=own, issued=issued)

    @cached_property
    def events_api(self) -> EventsApi:
        """Answers requests with pushed events."""
        from slackwater.receiver.push.request import EventsApi

        return EventsApi(
            tokens=self.accepted_tokens,
            source=self.project.source,
            # The function that stores what the queue has counts nothing: it is counted when it is queued.
            receiver=replace(self.receiver, put_metric=put_metric),
            queue=SqsEventQueue(self.clients("sqs"), self.settings.event_queue_url),
            put_report=self.put_report,
            put_verdict=self.put_verdict,
            now=utc_now,
        )

    def put_verdict(self, verdict: Verdict) -> None:
        """Store a verdict, and if it changes something, have the runs and days looked at that may have read its period.

        A `fail` that changes nothing is not stored: a partner may repeat it without end. Raises `CloudError` if a
        verdict is not stored.
        """
        from slackwater.state.partner_verdicts import changes_something

        subject = Subject(verdict.of, verdict.name)
        before = self.verdict_table.verdicts(subject, verdict.period, verdict.period)
        changes = changes_something(verdict, before)
        # A `pass` is also stored if there is no `fail` to clear: the request with an earlier one may be repeated later.
        if changes or not verdict.is_failure:
            self.verdict_table.put_verdicts([verdict])
        if changes:
            self.once.wake_requests.wake_verdict(subject, [verdict.period], verdict.at)

    @cached_property
    def period_folder(self) -> PeriodFolder:
        """Computes, stores and announces the states of periods."""
        from slackwater.aws.bus import EventBus
        from slackwater.runs.periods.fold_periods import PeriodFolder
        from slackwater.runs.periods.read_parts import PartReader

        return PeriodFolder(
            project=self.project,
            table=self.period_table,
            files=self.file_cache,
            parts=PartReader(self.store, self.settings.raw_bucket),
            exchange_bucket=self.settings.exchange_bucket,
            put_changes=EventBus(self.clients("events")).put_changes,
            on_changed=self._wake_runs,
            on_full=self._start_live_runs,
        )

    def _wake_runs(self, source: str, hours: Sequence[datetime]) -> None:
        """Have the runs evaluated that wait for these hours of a source."""
        if self.project.is_waited_for(source):
            self.wake_requests.wake_source(source, hours)

    def _start_live_runs(self, source: str, hours: Sequence[datetime]) -> None:
        """Have open periods published of which windows of a source are full."""
        if self.project.live_readers(source):
            self.wake_requests.start_counted(source, hours)

    @cached_property
    def live_windows(self) -> LiveWindows:
        """Starts runs of open periods of which windows are full."""
        from slackwater.runs.periods.live_windows import LiveWindows

        return LiveWindows(
            project=self.project,
            table=self.run_table,
            states=self.period_table,
            start=self.state_machines.start_once,
            machines=self.settings.state_machine_prefix,
            now=utc_now,
        )

    @cached_property
    def costs(self) -> CostRecorder:
        """Records what runs and comparisons cost."""
        from slackwater.aws.executions.run_usage import RunUsageReader
        from slackwater.runs.cost_recorder import CostRecorder

        settings = self.settings
        reader = RunUsageReader(
            states=self.clients("stepfunctions"),
            emr=self.clients("emr-serverless"),
            application=settings.application_id,
            function_mb=json.loads(settings.function_mb),
        )
        return CostRecorder(
            table=self.run_table,
            reader=reader,
            region=settings.aws_region,
            architecture=settings.architecture,
            now=utc_now,
            put_metric=put_metric,
        )

    @cached_property
    def ledger(self) -> Ledger:
        """Writes late inputs and their handling to the ledger."""
        from slackwater.aws.ledger_table import IcebergLedger
        from slackwater.aws.warehouse import open_catalog_to_write
        from slackwater.late.ledger import Ledger

        return Ledger(
            project=self.project,
            store=self.store,
            runs=self.run_table,
            # It repeats no request; Step Functions repeats the whole call.
            table=IcebergLedger(catalog=open_catalog_to_write(), database=self.settings.warehouse_database),
            executions=self.state_machines,
            exchange_bucket=self.settings.exchange_bucket,
            now=utc_now,
            on_unreadable=lambda uri, reason: warn("the ledger lacks what cannot be read", uri=uri, reason=reason),
            put_metric=put_metric,
        )

    @cached_property
    def table_maintenance(self) -> TableMaintenance:
        """Maintains the ledger and published tables."""
        from slackwater.aws.table_maintenance import TableMaintenance
        from slackwater.aws.warehouse import open_catalog_to_write

        return TableMaintenance(
            # It repeats no request; the next day does.
            catalog=open_catalog_to_write(),
            store=self.store,
            database=self.settings.warehouse_database,
            now=utc_now,
        )


@lru_cache(maxsize=4)
def function_resources(config: Config = CONFIG, **settings: str) -> FunctionResources:
    """Return the resources of this process whose clients have this `config`. `settings` replace variables."""
    variables = {name.lower(): value for name, value in os.environ.items()}
    return FunctionResources(SimpleNamespace(**variables | settings), Clients(config))
