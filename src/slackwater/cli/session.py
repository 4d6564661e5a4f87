"""A command's connection to the cloud: the deployed resources, and the library's objects that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slackwater.aws.clients import client
from slackwater.aws.deployment import Deployment, read_deployment
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.dynamodb.tokens import TokenTable
from slackwater.aws.job_logs import JobLogs
from slackwater.aws.machines import ExecutionView, Machines
from slackwater.aws.objects import S3ObjectStore
from slackwater.cli.progress import ProgressBoard
from slackwater.cli.running import (
    Runner,
    RunResult,
    correlation_id,
    require_success,
    show_states,
    start_comparison,
    start_pull,
)
from slackwater.cli.workspace import Workspace
from slackwater.errors import AccessDenied
from slackwater.project import Project

if TYPE_CHECKING:
    from slackwater.aws.queue import EventQueues
    from slackwater.cli.monitoring import MonitorResult
    from slackwater.cli.sender import PushTotals
    from slackwater.cli.sql import QueryResult
    from slackwater.late.comparison import Comparison
    from slackwater.late.decision import CheckReport
    from slackwater.receiver.writing.rejects_reader import RejectsReader

OPERATOR = "operator"
"""The partner name that the command line pushes with."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """Everything that commands do in the cloud."""

    workspace: Workspace
    project: Project
    deployment: Deployment
    cloud: str
    """The cloud's name for messages."""

    @classmethod
    def open(cls, workspace: Workspace, project: Project | None = None) -> Session:
        """Connect to the cloud and read which resources are deployed there.

        `project` is the workspace's project; by default it is loaded here. Raises `NotDeployed`.
        """
        # Before any client is created: boto3 reads the endpoint, which this sets, from the environment.
        cloud = workspace.connect_cloud()
        return cls(
            workspace=workspace,
            project=project or workspace.load_definitions(),
            deployment=read_deployment(client("cloudformation"), prefix=workspace.prefix),
            cloud=cloud,
        )

    @cached_property
    def machines(self) -> Machines:
        """The deployed state machines."""
        return Machines(client("stepfunctions"))

    @cached_property
    def store(self) -> S3ObjectStore:
        """The objects in S3."""
        return S3ObjectStore(client("s3"))

    @cached_property
    def table(self) -> DynamoRunTable:
        """The run table."""
        return DynamoRunTable(client("dynamodb"), self.deployment.run_table)

    @cached_property
    def file_cache(self) -> DynamoFileCache:
        """The file cache of all pulled sources."""
        return DynamoFileCache(client("dynamodb"), self.deployment.file_table)

    @cached_property
    def tokens(self) -> TokenTable:
        """Partners' bearer tokens."""
        return TokenTable(client("dynamodb"), self.deployment.token_table)

    @cached_property
    def runner(self) -> Runner:
        """Starts runs of pipelines and reads their results."""
        return Runner(machines=self.machines, table=self.table, prefix=self.deployment.pipeline_machine_prefix)

    @cached_property
    def rejects(self) -> RejectsReader:
        """Rejected events."""
        from slackwater.receiver.writing.rejects_reader import RejectsReader

        return RejectsReader(store=S3ObjectStore(client("s3")), raw_bucket=self.deployment.raw_bucket)

    @cached_property
    def buffer(self) -> EventQueues:
        """The queue of events that wait to be stored, and its dead-letter queue."""
        from slackwater.aws.queue import EventQueues

        deployment = self.deployment
        return EventQueues(
            client("sqs"), events=deployment.event_queue_url, dead_letters=deployment.event_dead_letter_queue_url
        )

    @cached_property
    def logs(self) -> JobLogs:
        """Spark jobs and their logs."""
        return JobLogs(
            emr=client("emr-serverless"),
            store=S3ObjectStore(client("s3")),
            application=self.deployment.application_id,
            prefix=self.deployment.log_prefix,
        )

    def run(self, pipeline: str, date: str, *, force: bool = False, allow_fewer: bool = False) -> RunResult:
        """Run a day and show the run's progress. Raises `RunFailed`."""
        execution = self.runner.start(pipeline, date, force=force, allow_fewer=allow_fewer)
        return self.runner.result(self._follow(execution))

    def pull(self, source: str, *, as_of: str | None) -> dict[str, Any]:
        """Pull a source as of an ISO date (None for today) and show the progress. Raises `RunFailed`.

        Returns the totals that the state machine returns: numbers of files by outcome, of rows and of rejected events.
        """
        machine = self.deployment.pull_machine_arn
        return dict(require_success(self._follow(start_pull(self.machines, machine, source=source, as_of=as_of))))

    def monitor(self, pipeline: str, as_of: str, *, on_report: Callable[[CheckReport], None]) -> MonitorResult:
        """Monitor a pipeline; arguments, result and errors are those of `slackwater.cli.monitoring.Monitor.run`."""
        from slackwater.cli.monitoring import Monitor

        monitor = Monitor(
            machines=self.machines,
            table=self.table,
            store=S3ObjectStore(client("s3")),
            machine=self.deployment.monitor_machine_arn,
            exchange_bucket=self.deployment.exchange_bucket,
        )
        return monitor.run(pipeline, as_of, on_report=on_report)

    def compare(self, pipeline: str, date: str) -> tuple[Comparison | None, str]:
        """Compare a day's published version with the version before it, and show the progress.

        Returns the comparison and an empty string, or None and the reason why there is nothing to compare. Raises
        `RunFailed`.
        """
        from slackwater.late.comparison import Comparison, ComparisonReference

        machine = self.deployment.compare_machine_arn
        execution = start_comparison(self.machines, machine, pipeline=pipeline, date=date)
        reference = ComparisonReference.model_validate(require_success(self._follow(execution)))
        if not reference.uri:
            return None, reference.reason
        return Comparison.model_validate_json(S3ObjectStore(client("s3")).get(reference.uri)), ""

    def _follow(self, execution: str) -> ExecutionView:
        """Follow an execution to its end, and show its states as progress."""
        with ProgressBoard() as progress:
            for view in self.machines.follow([execution]):
                show_states(progress, view)
        return view

    def push(
        self,
        source: str,
        events: Sequence[bytes],
        *,
        token: str | None = None,
        on_progress: Callable[[PushTotals], None] = lambda _: None,
    ) -> PushTotals:
        """Send events with `token`, by default with the operator's; `on_progress` gets the totals after each batch.

        Raises as `slackwater.cli.sender.Sender.send` does.
        """
        from slackwater.cli.sender import TokenFile

        if token is not None:
            return self._send(source, events, token, on_progress)
        api, file = self.deployment.api_url, TokenFile(self.workspace.state / "token")
        try:
            return self._send(source, events, file.get_or_create(api, self.create_operator_token), on_progress)
        except AccessDenied:
            # The saved token belongs to an earlier deployment, or is older than the source.
            token = self.create_operator_token()
            file.save(api, token)
            return self._send(source, events, token, on_progress)

    def _send(
        self, source: str, events: Sequence[bytes], token: str, on_progress: Callable[[PushTotals], None]
    ) -> PushTotals:
        import httpx

        from slackwater.cli.events import MAX_EVENTS, cut_batches
        from slackwater.cli.sender import PushTotals, Sender

        push = self.project.source(source).push
        max_events = min(MAX_EVENTS, push.max_events) if push else MAX_EVENTS
        correlation = correlation_id()
        totals = PushTotals(source, correlation)
        with httpx.Client() as http:
            sender = Sender(http=http, api=self.deployment.api_url, token=token, correlation_id=correlation)
            for totals in sender.send(source, cut_batches(events, max_events=max_events)):
                on_progress(totals)
        return totals

    def create_operator_token(self) -> str:
        """Return a new bearer token of the operator for all pushed sources; it replaces the older one of two."""
        sources = sorted(name for name, source in self.project.sources.items() if source.push)
        return self.tokens.create(OPERATOR, sources, instead_of_oldest=True).plain

    def query(self, sql: str) -> QueryResult:
        """Run one SQL statement. Raises `InputError` for wrong SQL."""
        from slackwater.cli.sql import CloudTables, run_query

        tables = CloudTables(self.project, self.deployment)
        return run_query(sql, tables=tables, pipelines=self.project.pipelines, sources=self.project.sources)
