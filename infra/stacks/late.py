"""What is done about late data: days checked, run again, compared, and people told."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs import grants
from infra.constructs.common import outputs, states_arn
from infra.constructs.library_function import Library, LibraryFunction
from infra.constructs.machine import StateMachine
from infra.machines import Machine
from infra.settings import Settings
from infra.stacks.processing import PIPELINE, ProcessingStack
from infra.stacks.storage import StorageStack

COMPARE, MONITOR = "compare-day", "monitor-days"
_DAYS = "Deal with the days"
"""The state that has the late days dealt with side by side."""


class LateStack(Stack):
    """One state machine that compares two versions of a day, one that monitors a pipeline's finished days."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        storage: StorageStack,
        processing: ProcessingStack,
        layer: Path,
        lambdas: Path,
        project_file: Path,
        compare: Machine,
        monitor: Machine,
        env: Environment | None = None,
    ) -> None:
        super().__init__(scope, id_, env=env, description="Slackwater: late days noticed, compared and told")
        self._settings, self._storage = settings, storage
        self._library = Library(self, "Library", settings=settings, artefact=layer, lambdas=lambdas)
        self._project = assets.Asset(self, "Project", path=str(project_file))
        self._runs = {"EXCHANGE_BUCKET": storage.exchange.bucket_name, "RUN_TABLE": storage.run_table.table_name}
        self.changes = sns.Topic(
            self,
            "Changes",
            topic_name=settings.named("changes"),
            display_name="Slackwater: published days that have changed",
            enforce_ssl=True,
        )
        self.check_days = self._check_days()
        self.compare_versions = self._compare_versions()
        self.tell_change = self._tell_change()
        self.compare = self._compare(compare, processing)
        self.monitor = self._monitor(monitor)
        outputs(
            self,
            {
                "CompareMachineArn": self.compare.arn,
                "MonitorMachineArn": self.monitor.arn,
                "ChangeTopicArn": self.changes.topic_arn,
            },
        )

    def _check_days(self) -> LibraryFunction:
        storage = self._storage
        function = self._library.function(
            "check_days",
            description="Compares what a pipeline's published days have read with what is there now",
            environment={
                **self._runs,
                "RAW_BUCKET": storage.raw.bucket_name,
                "FILE_TABLE": storage.file_table.table_name,
                "PROJECT_URI": self._project.s3_object_url,
            },
            timeout=Duration.minutes(10),
            memory_mb=1024,
        )
        grants.read_asset(function.role, self._project)
        grants.list_objects(function.role, storage.raw, "raw/")
        grants.read_objects(function.role, storage.raw, "raw/")
        grants.list_objects(function.role, storage.exchange, "manifests/")
        grants.read_objects(function.role, storage.exchange, "manifests/")
        grants.write_objects(function.role, storage.exchange, "checks/")
        grants.use_items(function.role, storage.file_table, "Query")
        grants.use_items(function.role, storage.run_table, "GetItem", "Query")
        grants.see_executions(function.role, self._settings.named(f"{PIPELINE}*"))
        return function

    def _compare_versions(self) -> LibraryFunction:
        function = self._library.function(
            "compare_versions",
            description="Says which two versions of a day are to be compared",
            environment=self._runs,
            timeout=Duration.minutes(1),
        )
        grants.list_objects(function.role, self._storage.exchange, "comparisons/")
        grants.read_objects(function.role, self._storage.exchange, "comparisons/")
        grants.write_objects(function.role, self._storage.exchange, "comparisons/")
        grants.use_items(function.role, self._storage.run_table, "GetItem", "Query")
        return function

    def _tell_change(self) -> LibraryFunction:
        function = self._library.function(
            "tell_change",
            description="Tells people what a new version of a day changed, once",
            environment={**self._runs, "CHANGE_TOPIC": self.changes.topic_arn},
            timeout=Duration.minutes(1),
        )
        grants.list_objects(function.role, self._storage.exchange, "comparisons/")
        grants.read_objects(function.role, self._storage.exchange, "comparisons/")
        grants.write_objects(function.role, self._storage.exchange, "comparisons/")
        grants.use_items(function.role, self._storage.run_table, "GetItem", "PutItem")
        grants.see_executions(function.role, self._settings.named(MONITOR))
        grants.allow(function.role, ["sns:Publish"], [self.changes.topic_arn])
        return function

    def _compare(self, definition: Machine, processing: ProcessingStack) -> StateMachine:
        functions = [self.compare_versions]
        values = {"CompareVersionsFunction": self.compare_versions.function.function_arn, **processing.job_values}
        machine = StateMachine(
            self,
            "Compare",
            settings=self._settings,
            name=COMPARE,
            definition=definition,
            values=values,
            functions=functions,
        )
        machine.let_run(processing.spark, processing.spark.job_role)
        return machine

    def _monitor(self, definition: Machine) -> StateMachine:
        definition["States"][_DAYS]["MaxConcurrency"] = self._settings.parallel_days
        values = {
            "CheckDaysFunction": self.check_days.function.function_arn,
            "TellChangeFunction": self.tell_change.function.function_arn,
            "PipelineMachinePrefix": states_arn(self, "stateMachine", self._settings.named(PIPELINE)),
            "CompareMachineArn": self.compare.arn,
        }
        machine = StateMachine(
            self,
            "Monitor",
            settings=self._settings,
            name=MONITOR,
            definition=definition,
            values=values,
            functions=[self.check_days, self.tell_change],
        )
        machine.let_start(self._settings.named(f"{PIPELINE}*"), wildcard="One machine for each pipeline.")
        machine.let_start(self._settings.named(COMPARE))
        return machine
