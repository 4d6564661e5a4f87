"""The objects of the Lambda functions: each function calls one of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger
from botocore.config import Config

from slackwater.aws.clients import CONFIG, SHORT_CONFIG, SINGLE_CONFIG, Clients
from slackwater.aws.emf import put_counts, put_metric
from slackwater.aws.function import best_effort, warn
from slackwater.aws.queue import ArrivalQueue, SqsEventQueue
from slackwater.aws.resources import Resources, utc_now
from slackwater.metrics import Metric

if TYPE_CHECKING:
    from slackwater.late.changes.choose_versions import Versions
    from slackwater.late.changes.notify import Notifier
    from slackwater.late.changes.outbox import Outbox
    from slackwater.late.check.arrival_checks import ArrivalChecks
    from slackwater.late.ledger import Ledger
    from slackwater.late.monitor import Monitor
    from slackwater.receiver.pull.fetch_result import FetchResult
    from slackwater.receiver.pull.large_files import FunctionFetcher
    from slackwater.receiver.pull.stale_objects import StaleObjects
    from slackwater.receiver.push.receive import Receiver
    from slackwater.receiver.push.request import EventsApi
    from slackwater.receiver.push.tokens import Tokens
    from slackwater.runs.cost_recorder import CostRecorder
    from slackwater.runs.freeze import Freezer
    from slackwater.runs.outcome import RunRecorder
    from slackwater.sources.partitions import UpdateTable


class FunctionResources(Resources):
    """The resources of a function, whose settings are its environment variables in lower case."""

    @cached_property
    def once(self) -> FunctionResources:
        """The same, but no request is repeated: for what a later call makes up for."""
        return FunctionResources(self.settings, Clients(SINGLE_CONFIG))

    @cached_property
    def short(self) -> FunctionResources:
        """The same, whose clients wait for seconds only."""
        return FunctionResources(self.settings, Clients(SHORT_CONFIG))

    @cached_property
    def arrivals(self) -> ArrivalQueue:
        """The queue of arrivals. The URL is empty if only the daily check finds late data."""
        return ArrivalQueue(self.clients("sqs"), self.settings.arrival_queue_url)

    @cached_property
    def update_raw_table(self) -> UpdateTable:
        """Has the table of a source follow the listing."""
        from slackwater.aws.raw_table_updates import RawTableUpdates

        return RawTableUpdates(self.clients, self.settings.raw_tables_function)

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

        return Receiver(raw_writer=self.raw_writer, now=utc_now)

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
            receiver=self.receiver,
            queue=SqsEventQueue(self.clients("sqs"), self.settings.event_queue_url),
            now=utc_now,
        )

    @cached_property
    def function_fetcher(self) -> FunctionFetcher:
        """Fetches files of partners."""
        from slackwater.receiver.pull.fetch import LEASE
        from slackwater.receiver.pull.large_files import FunctionFetcher

        return FunctionFetcher(
            source=self.project.source,
            store=self.store,
            fetch_file=partial(self.fetch_file, lease=LEASE),
            on_fetched=self.report_fetched,
        )

    def report_fetched(self, source: str, fetched: FetchResult) -> None:
        """Put the metrics of a fetched file, count its events, and have the days checked whose rows it has changed.

        An unchanged or busy file has no metrics. An error is only logged: the file itself is stored.
        """
        from slackwater.receiver.commits import file_committed
        from slackwater.receiver.event_counts import EventCount
        from slackwater.receiver.pull.fetch_result import FetchState

        counts = {
            Metric.FILES_STORED: int(fetched.state is FetchState.STORED),
            Metric.EVENTS_ACCEPTED: fetched.rows,
            Metric.EVENTS_REJECTED: fetched.rejected,
        }
        put_counts(counts, source=source)
        with best_effort("the events of the file were not counted"):
            count = EventCount(fetched.rows + fetched.rejected, fetched.rejected)
            self.once.event_counts.add(source, count, at=utc_now())
        with best_effort("days wait for the daily check"):
            messages = file_committed(source, fetched.partitions, time=utc_now())
            self.short.arrivals([(message.model_dump_json(), 0) for message in messages])

    @cached_property
    def stale_objects(self) -> StaleObjects:
        """Deletes objects of pulled files that nobody reads any more."""
        from slackwater.receiver.pull.stale_objects import StaleObjects

        return StaleObjects(
            store=self.store,
            cache=self.file_cache,
            raw_bucket=self.settings.raw_bucket,
            exchange_bucket=self.settings.exchange_bucket,
            update_table=self.update_raw_table,
            now=utc_now,
        )

    @cached_property
    def freezer(self) -> Freezer:
        """Freezes the inputs of runs."""
        from slackwater.runs.freeze import Freezer, KeptStages

        settings = self.settings
        return Freezer(
            project=self.project,
            store=self.store,
            inputs=self.inputs,
            table=self.run_table,
            executions=self.state_machines,
            exchange_bucket=settings.exchange_bucket,
            # With 0 days, the function record_run removes the files of a run that has published its day.
            keeps=KeptStages(
                age=timedelta(days=int(settings.kept_days)), published=int(settings.intermediate_days) > 0
            ),
            now=utc_now,
            on_run_lost=lambda pipeline: put_metric(Metric.RUNS_FAILED, 1, pipeline=pipeline),
        )

    @cached_property
    def recorder(self) -> RunRecorder:
        """Records the outcome of runs."""
        from slackwater.runs.outcome import RunRecorder

        return RunRecorder(
            store=self.store,
            table=self.run_table,
            now=utc_now,
            # What they read of AWS is not repeated: the next check of the days records what is missing.
            costs=replace(self.once.costs, table=self.run_table),
            # Not repeated, because the time of the function is short.
            arrivals=self.once.arrivals,
            put_metric=put_metric,
            warn=warn,
            keeps_arrow_files=int(self.settings.intermediate_days) > 0,
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
        )

    @cached_property
    def monitor(self) -> Monitor:
        """Checks days, and does what follows from the report."""
        from slackwater.late.changes.definition_notices import DefinitionNotifier
        from slackwater.late.changes.table_notices import TableNotifier
        from slackwater.late.monitor import Monitor

        return Monitor(
            checker=self.checker,
            tables=TableNotifier(table=self.run_table, outbox=self.outbox),
            definitions=DefinitionNotifier(project=self.project, table=self.run_table, outbox=self.outbox),
            # The next check makes up for these.
            arrivals=self.once.arrivals,
            event_counts=self.once.event_counts,
            costs=self.once.costs,
            update_table=self.update_raw_table,
            put_metric=put_metric,
            warn=warn,
        )

    @cached_property
    def arrival_checks(self) -> ArrivalChecks:
        """Starts checks of days with new objects."""
        from slackwater.late.check.arrival_checks import ArrivalChecks

        return ArrivalChecks(
            project=self.project,
            table=self.run_table,
            executions=self.state_machines,
            start=partial(self.state_machines.start_once, self.settings.monitor_machine),
            send_later=self.arrivals,
            update_table=self.update_raw_table,
            now=utc_now,
        )

    @cached_property
    def versions(self) -> Versions:
        """Chooses the versions of a day to compare."""
        from slackwater.late.changes.choose_versions import Versions

        return Versions(
            store=self.store,
            table=self.run_table,
            exchange_bucket=self.settings.exchange_bucket,
            executions=self.state_machines,
            now=utc_now,
            put_metric=put_metric,
        )

    @cached_property
    def notifier(self) -> Notifier:
        """Notifies people of changed days."""
        from slackwater.late.changes.notify import Notifier

        return Notifier(store=self.store, table=self.run_table, outbox=self.outbox, costs=self.once.costs)

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
        )


@lru_cache(maxsize=4)
def function_resources(config: Config = CONFIG, **settings: str) -> FunctionResources:
    """Return the resources of this process whose clients have this `config`. `settings` replace variables."""
    variables = {name.lower(): value for name, value in os.environ.items()}
    return FunctionResources(SimpleNamespace(**variables | settings), Clients(config))
