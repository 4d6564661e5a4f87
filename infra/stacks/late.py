"""Late data: the functions and state machines that check days, run them again, compare versions and notify."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.arrivals import CHECK_TIMEOUT, Arrivals
from infra.constructs.common import outputs, states_arn
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.constructs.state_machine import StateMachine, allow_executions, allow_jobs, machine_role, pass_role
from infra.constructs.state_queue import FOLD_TIMEOUT, StateQueue
from infra.settings import Scheduler
from infra.stacks.base import FunctionStack, Parts
from infra.stacks.processing import COMPARE_MB, ProcessingStack
from infra.stacks.storage import StorageStack
from slackwater.late.pending import PENDING
from slackwater.pipeline.definition import LEDGER_TABLE
from slackwater.project.schedule import BACKFILL_MACHINE, COMPARE_MACHINE, MONITOR_MACHINE, PIPELINE_MACHINE_PREFIX
from slackwater.runs.periods.changes import LISTS

# Lambda gives a function with 1,769 MB a whole vCPU. A check is the work of one processor (docs/benchmarks.md).
_CHECK_MB = 1769
_FOLD_MB = 1769
# The rows of a new file are in memory: 64 MB of Parquet are up to ten times as many bytes.
_MAINTENANCE_MB = 3008


class LateStack(FunctionStack):
    """State machines that compare two versions of a day, monitor the finished days of a pipeline, and run its days."""

    def __init__(self, scope: Construct, parts: Parts, storage: StorageStack, processing: ProcessingStack) -> None:
        super().__init__(scope, "late", parts, "detects, compares and reports late days")
        settings, project, self._storage = parts.settings, parts.project, storage
        self._runs = storage.variables("EXCHANGE_BUCKET", "RUN_TABLE")
        self.changes = sns.Topic(
            self,
            "Changes",
            topic_name=settings.named("changes"),
            display_name="Slackwater: changes of published days",
            enforce_ssl=True,
        )
        self.check_days = self._check_days(processing)
        read = [source for pipeline in project.pipelines.values() for source in pipeline.sources]
        grants.decrypt_sources(self.check_days.role, storage.source_keys, read)
        grants.allow_foreign_tables(self.check_days.role, project.pipelines.values())
        self.compare_versions = self._compare_versions()
        self.notify_change = self._notify_change(processing)
        self.write_ledger = self._write_ledger()
        self.invoke_every(Duration.days(1), self._maintain_tables(), description="Files of the ledger and of tables")
        self.compare = self._compare(processing)
        self.monitor = self._monitor()
        self.backfill = self._backfill()
        self.arrivals = Arrivals(self, "Arrivals", settings=settings, raw=storage.raw)
        self.arrivals.feed(self._check_arrivals())
        self.states = StateQueue(self, "States", settings=settings, project=project, raw=storage.raw)
        self.states.feed(self._fold_state())
        outputs(
            self,
            {
                "CompareMachineArn": self.compare.arn,
                "MonitorMachineArn": self.monitor.arn,
                "BackfillMachineArn": self.backfill.arn,
                "Schedule": settings.schedule,
                "CollectMinutes": str(settings.collect_minutes),
                "ChangeTopicArn": self.changes.topic_arn,
                "ArrivalQueueUrl": self.arrivals.queue.queue_url,
                "ArrivalDeadLetterQueueUrl": self.arrivals.dead_letters.queue_url,
                "StateQueueUrl": self.states.queue.queue_url,
                "StateDeadLetterQueueUrl": self.states.dead_letters.queue_url,
            },
        )

    def _check_days(self, processing: ProcessingStack) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "check_days",
            sends_arrivals=True,
            sends_states=True,
            updates_raw_tables=True,
            wakes_runs=True,
            description="Compares the inputs that published days have read with their current inputs",
            environment={
                **storage.variables("EXCHANGE_BUCKET", "RUN_TABLE", "RAW_BUCKET", "FILE_TABLE", "STATE_TABLE"),
                "PROJECT_URI": self.project.s3_object_url,
                **processing.cost_values,
                "CHANGE_TOPIC": self.changes.topic_arn,
            },
            timeout=Duration.minutes(10),
            memory_mb=_CHECK_MB,
            # Duplicate ids of a large hour are compared on disk: 10 million ids of 36 characters take 500 MB.
            disk_mb=4096,
        )
        # Late events that were rejected belong into the ledger.
        grants.find_objects(function.role, storage.raw, "raw/", "sideline/", "redriven/")
        grants.find_objects(function.role, storage.exchange, "manifests/")
        grants.write_objects(function.role, storage.exchange, "checks/", PENDING)
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        grants.use_items(function.role, storage.state_table, "BatchGetItem", "BatchWriteItem", "Query")
        grants.use_items(function.role, storage.run_table, "GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query")
        grants.query_indexes(function.role, storage.run_table, "published", "notification-due", "held")
        processing.allow_costs(function.role, COMPARE_MACHINE)
        grants.describe_executions(function.role, self.settings.named(f"{PIPELINE_MACHINE_PREFIX}*"))
        # A check asks whether the monitoring that has claimed a message about changed tables is still running.
        grants.describe_executions(function.role, self.settings.named(MONITOR_MACHINE))
        grants.allow(function.role, ["sns:Publish"], [self.changes.topic_arn])
        return function

    def _check_arrivals(self) -> LibraryFunction:
        function = self.function(
            "check_arrivals",
            updates_raw_tables=True,
            wakes_runs=True,
            description="Starts a monitoring of the published days that new objects belong to",
            environment={
                **self._storage.variables("RUN_TABLE"),
                "PROJECT_URI": self.project.s3_object_url,
                "MONITOR_MACHINE": self.monitor.arn,
                "ARRIVAL_QUEUE_URL": self.arrivals.queue.queue_url,
            },
            timeout=CHECK_TIMEOUT,
        )
        grants.use_items(function.role, self._storage.run_table, "GetItem", "UpdateItem")
        grants.describe_executions(function.role, self.settings.named(f"{PIPELINE_MACHINE_PREFIX}*"))
        grants.use_queue(function.role, self.arrivals.queue, "SendMessage")
        grants.allow(function.role, ["states:StartExecution"], [self.monitor.arn])
        if self.settings.schedule is Scheduler.AIRFLOW:
            # By its name: the environment is created after the state machines that it starts.
            environment = self.settings.airflow_environment or self.settings.named("schedule")
            function.function.add_environment("AIRFLOW_ENVIRONMENT", environment)
            # The least role of Airflow that may start DAG runs.
            role = self.format_arn(service="airflow", resource="role", resource_name=f"{environment}/User")
            grants.allow(function.role, ["airflow:InvokeRestApi"], [role])
        return function

    def _fold_state(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "fold_state",
            wakes_runs=True,
            description="Computes the states of the periods of sources that report how many events they have sent",
            environment={
                **storage.variables("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "STATE_TABLE"),
                "PROJECT_URI": self.project.s3_object_url,
            },
            timeout=FOLD_TIMEOUT,
            memory_mb=_FOLD_MB,
            # Duplicate ids of a large hour are compared on disk.
            disk_mb=4096,
        )
        counted = [name for name, source in self.parts.project.sources.items() if source.counts]
        grants.find_objects(function.role, storage.raw, "raw/")
        grants.decrypt_sources(function.role, storage.source_keys, counted)
        # No event of this bucket leads to a message.
        grants.write_objects(function.role, storage.exchange, LISTS)
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        grants.use_items(
            function.role,
            storage.state_table,
            *("BatchGetItem", "Query", "PutItem", "UpdateItem", "BatchWriteItem"),
        )
        bus = self.format_arn(service="events", resource="event-bus", resource_name="default")
        grants.allow(function.role, ["events:PutEvents"], [bus])
        return function

    def _compare_versions(self) -> LibraryFunction:
        function = self.function(
            "compare_versions",
            description="Chooses the two versions of a day to compare",
            environment=self._runs,
            timeout=Duration.minutes(1),
            memory_mb=COMPARE_MB,
        )
        # A split reads the inputs of both versions.
        grants.find_objects(function.role, self._storage.exchange, "comparisons/", "manifests/")
        grants.write_objects(function.role, self._storage.exchange, "comparisons/")
        grants.use_items(function.role, self._storage.run_table, "GetItem", "PutItem", "Query")
        grants.describe_executions(function.role, self.settings.named(COMPARE_MACHINE))
        return function

    def _notify_change(self, processing: ProcessingStack) -> LibraryFunction:
        function = self.function(
            "notify_change",
            description="Notifies readers once of what a new version of a day changed",
            environment={**self._runs, "CHANGE_TOPIC": self.changes.topic_arn, **processing.cost_values},
            timeout=Duration.minutes(1),
        )
        grants.find_objects(function.role, self._storage.exchange, "comparisons/")
        grants.write_objects(function.role, self._storage.exchange, "comparisons/")
        grants.use_items(function.role, self._storage.run_table, "GetItem", "PutItem", "Query")
        processing.allow_costs(function.role, COMPARE_MACHINE)
        grants.describe_executions(function.role, self.settings.named(MONITOR_MACHINE))
        grants.allow(function.role, ["sns:Publish"], [self.changes.topic_arn])
        return function

    def _write_ledger(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "write_ledger",
            description="Writes late inputs and their handling to the ledger",
            environment={
                **storage.variables("EXCHANGE_BUCKET", "RUN_TABLE", "WAREHOUSE_DATABASE"),
                "PROJECT_URI": self.project.s3_object_url,
            },
            timeout=Duration.minutes(5),
            memory_mb=1024,
        )
        grants.find_objects(function.role, storage.exchange, PENDING, "checks/", "manifests/", "comparisons/")
        grants.delete_objects(function.role, storage.exchange, PENDING)
        grants.use_items(function.role, storage.run_table, "Query")
        grants.describe_executions(function.role, self.settings.named(MONITOR_MACHINE))
        table = f"{storage.warehouse_database}/{LEDGER_TABLE}/"
        grants.list_objects(function.role, storage.warehouse, table)
        grants.replace_objects(function.role, storage.warehouse, table)
        grants.use_database(function.role, storage.warehouse_database, "GetDatabase")
        grants.use_table(
            function.role, storage.warehouse_database, LEDGER_TABLE, "GetTable", "CreateTable", "UpdateTable"
        )
        return function

    def _maintain_tables(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "maintain_tables",
            description="Rewrites small files of the ledger and of published tables, and removes what nothing names",
            environment={**storage.variables("WAREHOUSE_DATABASE"), "PROJECT_URI": self.project.s3_object_url},
            timeout=Duration.minutes(15),
            memory_mb=_MAINTENANCE_MB,
        )
        tables = f"{storage.warehouse_database}/"
        grants.list_objects(function.role, storage.warehouse, tables)
        grants.replace_objects(function.role, storage.warehouse, tables)
        # pyiceberg asks before each commit whether it is a database of S3 Tables.
        grants.use_database(function.role, storage.warehouse_database, "GetDatabase")
        grants.use_tables(function.role, storage.warehouse_database, "GetTable", "UpdateTable")
        return function

    def _compare(self, processing: ProcessingStack) -> StateMachine:
        values = {
            "CompareVersionsFunction": self.compare_versions.arn,
            **processing.job_values,
            "JobRoleArn": processing.compare_role.role_arn,
            "SplitJobRoleArn": processing.split_role.role_arn,
        }
        role = machine_role(self, "Compare", functions=[self.compare_versions])
        allow_jobs(role, processing.spark)
        pass_role(role, processing.compare_role)
        pass_role(role, processing.split_role)
        return self.machine(role, COMPARE_MACHINE, self.parts.machine("compare_day"), values)

    def _monitor(self) -> StateMachine:
        definition = self.parts.machine("monitor_days")
        # A number in the definition cannot be a placeholder, which is part of a string.
        [days] = [state for state in definition["States"].values() if state["Type"] == "Map"]
        days["MaxConcurrency"] = self.settings.parallel_days
        values = {
            "CheckDaysFunction": self.check_days.arn,
            "NotifyChangeFunction": self.notify_change.arn,
            "WriteLedgerFunction": self.write_ledger.arn,
            "PipelineMachinePrefix": states_arn(self, "stateMachine", self.settings.named(PIPELINE_MACHINE_PREFIX)),
            "CompareMachineArn": self.compare.arn,
        }
        role = machine_role(self, "Monitor", functions=[self.check_days, self.notify_change, self.write_ledger])
        allow_executions(role, self.settings.named(f"{PIPELINE_MACHINE_PREFIX}*"))
        allow_executions(role, self.settings.named(COMPARE_MACHINE))
        return self.machine(role, MONITOR_MACHINE, definition, values)

    def _backfill(self) -> StateMachine:
        pipelines = self.settings.named(PIPELINE_MACHINE_PREFIX)
        role = machine_role(self, "Backfill")
        allow_executions(role, f"{pipelines}*")
        values = {"PipelineMachinePrefix": states_arn(self, "stateMachine", pipelines)}
        return self.machine(role, BACKFILL_MACHINE, self.parts.machine("backfill"), values)
