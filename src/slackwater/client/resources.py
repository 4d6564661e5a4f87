"""The parts of a deployed system that a client uses, each connected when it is first used."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from slackwater.aws.executions.job_logs import JobLogs
from slackwater.aws.resources import Resources, utc_now
from slackwater.client.connection import Connection
from slackwater.client.days.executions import Executions

if TYPE_CHECKING:
    import httpx

    from slackwater.aws.queue import EventQueues
    from slackwater.client.days.run_log import RunLogReader
    from slackwater.client.days.timeline import TimelineReader
    from slackwater.client.holds import HoldDecisions
    from slackwater.client.push import Pusher
    from slackwater.receiver.pull.rejects_reader import RejectsReader


class ClientResources(Resources):
    """The resources of a client, whose settings are the outputs of the deployed stacks."""

    def __init__(self, connection: Connection, correlation_id: str) -> None:
        super().__init__(connection.deployment, connection.clients)
        self.connection = connection
        self.correlation_id = correlation_id
        """The id of everything that this client does, in the logs and records of the cloud."""
        self.project = connection.project
        """The sources and pipelines of the project."""

    def close(self) -> None:
        """Close all connections. What runs in the cloud goes on."""
        self.clients.close()
        if "http" in vars(self):
            self.http.close()

    @cached_property
    def executions(self) -> Executions:
        """The executions of the deployed state machines."""
        return Executions(state_machines=self.state_machines, correlation_id=self.correlation_id)

    @cached_property
    def rejects(self) -> RejectsReader:
        """Rejected events."""
        from slackwater.receiver.pull.rejects_reader import RejectsReader

        return RejectsReader(store=self.store, files=self.file_cache, raw_bucket=self.settings.raw_bucket)

    @cached_property
    def buffer(self) -> EventQueues:
        """The queue of events that wait to be stored, and its dead-letter queue."""
        from slackwater.aws.queue import EventQueues

        settings = self.settings
        return EventQueues(
            self.clients("sqs"), events=settings.event_queue_url, dead_letters=settings.event_dead_letter_queue_url
        )

    @cached_property
    def logs(self) -> JobLogs:
        """Spark jobs and their logs."""
        return JobLogs(
            emr=self.clients("emr-serverless"),
            store=self.store,
            application=self.settings.application_id,
            prefix=self.settings.log_prefix,
        )

    @cached_property
    def run_logs(self) -> RunLogReader:
        """Reads the logs of runs."""
        from slackwater.aws.executions.function_logs import FunctionLogs
        from slackwater.client.days.run_log import RunLogReader

        functions = FunctionLogs(logs=self.clients("logs"), prefix=self.connection.workspace.prefix)
        return RunLogReader(states=self.clients("stepfunctions"), functions=functions, jobs=self.logs)

    @cached_property
    def timelines(self) -> TimelineReader:
        """Reads the timelines of runs."""
        from slackwater.client.days.timeline import TimelineReader

        return TimelineReader(state_machines=self.state_machines, jobs=self.logs, store=self.store)

    @cached_property
    def hold_decisions(self) -> HoldDecisions:
        """Releases and rejects days on hold."""
        from slackwater.aws.clients import caller_arn
        from slackwater.client.holds import HoldDecisions

        return HoldDecisions(
            project=self.project,
            table=self.run_table,
            store=self.store,
            inputs=self.inputs,
            executions=self.state_machines,
            checker=self.checker,
            principal=lambda: caller_arn(self.clients("sts")),
            now=utc_now,
        )

    @cached_property
    def http(self) -> httpx.Client:
        """The HTTP client of the API."""
        import httpx

        from slackwater.client.sender import TIMEOUT

        return httpx.Client(timeout=TIMEOUT)

    @cached_property
    def pusher(self) -> Pusher:
        """Pushes events to the API."""
        from slackwater.client.push import Pusher
        from slackwater.client.retry_budget import RetryBudget
        from slackwater.client.token_file import TokenFile

        return Pusher(
            http=self.http,
            api=self.settings.api_url,
            project=self.project,
            tokens=self.tokens,
            token_file=TokenFile(self.connection.workspace.state / "token"),
            correlation_id=self.correlation_id,
            budget=RetryBudget(),
        )
