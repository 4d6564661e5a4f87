"""One command's connection to the cloud: what is deployed there, and the library's objects over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slackwater.aws.clients import client
from slackwater.aws.deployment import Deployment, read_deployment
from slackwater.aws.job_logs import JobLogs
from slackwater.aws.machines import ExecutionView, Machines
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.aws.tokens import TokenTable
from slackwater.cli.context import Place, load, reach_cloud
from slackwater.cli.events import MAX_EVENTS, batches
from slackwater.cli.progress import ProgressBoard
from slackwater.cli.running import (
    Runner,
    RunResult,
    correlation_id,
    show_states,
    start_comparison,
    start_pull,
    succeeded,
)
from slackwater.cli.tokens import OPERATOR, TokenFile
from slackwater.errors import AccessDenied
from slackwater.project import Project

if TYPE_CHECKING:
    from slackwater.aws.queue import EventQueues
    from slackwater.cli.monitoring import MonitorResult
    from slackwater.cli.sender import Pushed
    from slackwater.cli.sql import Answer
    from slackwater.late.comparison import Comparison
    from slackwater.late.decision import CheckReport
    from slackwater.receiver.writing.rejects_reader import RejectsReader


@dataclass(frozen=True, kw_only=True)
class Session:
    """Everything that the commands do in the cloud."""

    place: Place
    project: Project
    deployment: Deployment
    cloud: str
    """The cloud's name for people."""

    @classmethod
    def open(cls, place: Place, project: Project | None = None) -> Session:
        """Reach the cloud and see what is deployed there. Raises `NotDeployed`."""
        cloud = reach_cloud(place)
        return cls(
            place=place,
            project=project or load(place),
            deployment=read_deployment(client("cloudformation")),
            cloud=cloud,
        )

    @cached_property
    def machines(self) -> Machines:
        """State machines."""
        return Machines(client("stepfunctions"))

    @cached_property
    def table(self) -> DynamoRunTable:
        """The run table."""
        return DynamoRunTable(client("dynamodb"), self.deployment.run_table)

    @cached_property
    def tokens(self) -> TokenTable:
        """Bearer tokens of partners."""
        return TokenTable(client("dynamodb"), self.deployment.token_table)

    @cached_property
    def runner(self) -> Runner:
        """Runs of pipelines."""
        return Runner(machines=self.machines, table=self.table, prefix=self.deployment.pipeline_machine_prefix)

    @cached_property
    def sideline(self) -> RejectsReader:
        """What was rejected."""
        from slackwater.receiver.writing.rejects_reader import RejectsReader

        return RejectsReader(store=S3ObjectStore(client("s3")), raw_bucket=self.deployment.raw_bucket)

    @cached_property
    def buffer(self) -> EventQueues:
        """Events on their way."""
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
        """Run a day and show its states as they pass. Raises `RunFailed`."""
        execution = self.runner.start(pipeline, date, force=force, allow_fewer=allow_fewer)
        return self.runner.outcome(self._followed(execution))

    def pull(self, source: str, *, as_of: str | None) -> dict[str, Any]:
        """Pull a source and show the states as they pass; return the totals. Raises `RunFailed`."""
        machine = self.deployment.pull_machine_arn
        return dict(succeeded(self._followed(start_pull(self.machines, machine, source=source, as_of=as_of))))

    def monitor(self, pipeline: str, as_of: str, *, found: Callable[[CheckReport], None]) -> MonitorResult:
        """Monitor a pipeline as `slackwater.cli.monitoring.Monitor.run` does."""
        from slackwater.cli.monitoring import Monitor

        monitor = Monitor(
            machines=self.machines,
            table=self.table,
            store=S3ObjectStore(client("s3")),
            machine=self.deployment.monitor_machine_arn,
            exchange_bucket=self.deployment.exchange_bucket,
        )
        return monitor.run(pipeline, as_of, found=found)

    def compare(self, pipeline: str, date: str) -> tuple[Comparison | None, str]:
        """Compare a day's published version with the one before, and show the states as they pass.

        Without one before it, the comparison is None, and the text says why. Raises `RunFailed`.
        """
        from slackwater.late.comparison import Comparison, ComparisonReference

        machine = self.deployment.compare_machine_arn
        execution = start_comparison(self.machines, machine, pipeline=pipeline, date=date)
        reference = ComparisonReference.model_validate(succeeded(self._followed(execution)))
        if not reference.uri:
            return None, reference.why
        return Comparison.model_validate_json(S3ObjectStore(client("s3")).get(reference.uri)), ""

    def _followed(self, execution: str) -> ExecutionView:
        with ProgressBoard() as board:
            for view in self.machines.follow([execution]):
                show_states(board, view)
        return view

    def push(
        self,
        source: str,
        events: Sequence[bytes],
        *,
        token: str | None = None,
        progress: Callable[[Pushed], None] = lambda _: None,
    ) -> Pushed:
        """Send events with `token`, or with the operator's own. Raises as `Sender.send` does."""
        if token is not None:
            return self._push(source, events, token, progress)
        kept = TokenFile(self.place.state / "token")
        try:
            return self._push(source, events, kept.kept_or_minted(self.deployment.api_url, self._mint), progress)
        except AccessDenied:
            # Kept from a deployment that has gone since, or from before the source was added.
            token = self._mint()
            kept.keep(self.deployment.api_url, token)
            return self._push(source, events, token, progress)

    def _push(self, source: str, events: Sequence[bytes], token: str, progress: Callable[[Pushed], None]) -> Pushed:
        push = self.project.source(source).push
        import httpx

        from slackwater.cli.sender import Pushed, Sender

        largest = min(MAX_EVENTS, push.max_events) if push else MAX_EVENTS
        correlation = correlation_id()
        totals = Pushed(source, correlation)
        with httpx.Client() as http:
            sender = Sender(http=http, api=self.deployment.api_url, token=token, correlation_id=correlation)
            for totals in sender.send(source, batches(events, max_events=largest)):
                progress(totals)
        return totals

    def _mint(self) -> str:
        return self.mint(OPERATOR, sorted(name for name, source in self.project.sources.items() if source.push))

    def mint(self, partner: str, sources: Sequence[str]) -> str:
        """Return a new bearer token of a partner for these sources, in place of its oldest where it has two."""
        return self.tokens.create(partner, sources, instead_of_oldest=True).plain

    def query(self, sql: str) -> Answer:
        """Answer SQL. Raises `InputError` for wrong SQL."""
        from slackwater.cli.sql import ask
        from slackwater.cli.tables import CloudTables

        tables = CloudTables(self.project, self.deployment)
        return ask(sql, tables=tables, pipelines=self.project.pipelines, sources=self.project.sources)
