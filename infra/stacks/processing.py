"""Processing: the Spark application, the functions that freeze inputs and record runs, and their state machines."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct
from pydantic.alias_generators import to_pascal

from infra.constructs.common import outputs, states_arn
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants, job_permissions
from infra.constructs.permissions.roles import Grantee, SharedPolicy
from infra.constructs.spark_application import SparkApplication
from infra.constructs.state_machine import (
    StateMachine,
    allow_answers,
    allow_functions,
    allow_job_reads,
    allow_jobs,
    machine_role,
    pass_role,
)
from infra.openlineage import OpenLineage
from infra.settings import Settings
from infra.stacks.base import AWAIT_INPUTS, SEND_LINEAGE, FunctionStack, Parts
from infra.stacks.receiver import ReceiverStack
from infra.stacks.storage import StorageStack
from slackwater import __version__
from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.retries import Machine
from slackwater.pipeline.spark_workers import SparkSizes
from slackwater.project.schedule import PIPELINE_MACHINE_PREFIX, PULL_MACHINE
from slackwater.runs.record import ARROW_FILES
from slackwater.sources.kms_keys import format_source_keys

# Memory of the functions of a run, in MB: part of what a run costs.
_FREEZE_MB, _AWAIT_MB, _RECORD_MB = 1024, 1024, 512
# A manifest of 100,000 objects takes 0.15 GB beside the library, which takes 0.3 GB.
_LINEAGE_MB = 1024
COMPARE_MB = 512
"""Memory of the functions of a comparison, in MB: part of what it costs."""

# With the versions of 90 days of hours, a publication takes a second (decision 49). Checks compare those of 366 hours,
# and have a day to do so.
_FEWEST_DAYS_OF_HOURS, _MOST_DAYS_OF_HOURS = 17, 90


def version_days(pipeline: Pipeline, settings: Settings) -> int:
    """Return for how many days versions of a pipeline's table stay; 0 for all."""
    if pipeline.period == "hour":
        return min(max(settings.version_days or _MOST_DAYS_OF_HOURS, _FEWEST_DAYS_OF_HOURS), _MOST_DAYS_OF_HOURS)
    return settings.version_days


class ProcessingStack(FunctionStack):
    """A state machine that pulls sources, and one for each pipeline."""

    def __init__(self, scope: Construct, parts: Parts, storage: StorageStack, receiver: ReceiverStack) -> None:
        super().__init__(scope, "processing", parts, "Spark and the state machines")
        settings, project, jobs, self._storage = parts.settings, parts.project, parts.root / "glue_jobs", storage
        self._archive = assets.Asset(self, "Archive", path=str(parts.artefacts.archive))
        self._run_stage, self._compare_day, self._fetch_file, self._check_release = (
            assets.Asset(self, to_pascal(name), path=str(jobs / f"{name}.py"))
            for name in ("run_stage", "compare_day", "fetch_file", "check_release")
        )
        self.spark = SparkApplication(self, "Spark", settings=settings)
        self.pull_role = self._job_role("PullJobRole", "Jobs that fetch large files", self._fetch_file)
        job_permissions.allow_pulls(self.pull_role, project, storage=storage)
        self.compare_role = self._job_role("CompareJobRole", "Jobs that compare versions of days", self._compare_day)
        job_permissions.allow_comparisons(self.compare_role, storage=storage)
        self.split_role = self.spark.new_role(self, "SplitJobRole", "Jobs that compute days with earlier definitions")
        grants.read_earlier_assets(self.split_role, self._archive, settings=settings)
        grants.read_jars(self.split_role, settings.spark_jars)
        job_permissions.allow_splits(self.split_role, project, storage=storage)
        self.freeze_inputs = self._freeze_inputs()
        self.await_inputs = self._await_inputs()
        for function in (self.freeze_inputs, self.await_inputs):
            grants.allow_foreign_tables(function.role, project.pipelines.values())
        self.record_run = self._record_run()
        self.send_lineage = self._send_lineage(settings.openlineage) if settings.openlineage else None
        self.pull = self._pull(receiver)
        self._of_jobs, self._of_machines = SharedPolicy(self, "PipelineJobs"), SharedPolicy(self, "PipelineMachines")
        self._allow_files(self._of_jobs, self._run_stage)
        job_permissions.allow_every_pipeline(self._of_jobs, storage=storage)
        allow_functions(self._of_machines, [self.await_inputs, self.freeze_inputs, self.record_run])
        allow_jobs(self._of_machines, self.spark)
        frame = parts.machine("pipeline")
        for pipeline in project.pipelines.values():
            self._pipeline(pipeline, compile_machine(pipeline, frame))
        any_pipeline = self._job_role(
            "AnyPipelineJobRole", "Jobs of pipelines that are not deployed", self._run_stage, self._check_release
        )
        job_permissions.allow_any_pipeline(any_pipeline, project, storage=storage)
        any_machine = machine_role(self, "AnyPipeline", policies=[self._of_machines])
        pass_role(any_machine, any_pipeline)
        outputs(
            self,
            {
                "ApplicationId": self.spark.id,
                "PullMachineArn": self.pull.arn,
                "PipelineMachinePrefix": states_arn(self, "stateMachine", self.settings.named(PIPELINE_MACHINE_PREFIX)),
                "ProjectUri": self.project.s3_object_url,
                "LogPrefix": self.log_uri,
                "LibraryVersion": __version__,
                "CheckReleaseUri": self._check_release.s3_object_url,
                "AnyPipelineRoleArn": any_machine.role_arn,
                "JobRoleArn": any_pipeline.role_arn,
                "FreezeInputsFunction": self.freeze_inputs.arn,
                "RecordRunFunction": self.record_run.arn,
                "AwaitInputsFunction": self.await_inputs.arn,
                "RunStageUri": self._run_stage.s3_object_url,
                "FilesPrefix": storage.files_uri,
                "SparkSubmitParameters": self.spark.submit_parameters(
                    archive=self._archive.s3_object_url,
                    warehouse=f"s3://{storage.warehouse.bucket_name}/",
                    region=self.region,
                ),
                "ConcurrentRuns": str(settings.concurrent_runs),
                **({"LineageFunction": self.send_lineage.arn} if self.send_lineage else {}),
                # The value of an output must not be empty.
                **({"OutboundAllow": allowed} if (allowed := self.job_values["OutboundAllow"]) else {}),
                **({"SourceKmsKeys": keys} if (keys := storage.source_keys_value) else {}),
            },
        )

    def _freeze_inputs(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "freeze_inputs",
            sends_lineage=True,
            description="Writes the input manifest of a run and claims its day",
            environment={
                **storage.variables("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "RUN_TABLE", "STATE_TABLE"),
                "KEPT_DAYS": str(storage.kept_days),
                "INTERMEDIATE_DAYS": str(self.settings.intermediate_days),
            },
            timeout=Duration.minutes(10),
            memory_mb=_FREEZE_MB,
            # Duplicate ids of a large hour are compared on disk: 10 million ids of 36 characters take 500 MB.
            disk_mb=4096,
        )
        grants.read_asset(function.role, self.project, settings=self.settings)
        grants.find_objects(function.role, storage.raw, "raw/")
        # All keys: it also freezes the inputs of pipelines that are not deployed.
        grants.decrypt_sources(function.role, storage.source_keys)
        # Under runs/ are the stages that earlier attempts have finished.
        grants.list_objects(function.role, storage.exchange, "manifests/", "runs/", ARROW_FILES)
        grants.read_objects(function.role, storage.exchange, "manifests/", "runs/", job_permissions.PROJECTS)
        grants.write_objects(function.role, storage.exchange, "manifests/", "runs/")
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        grants.query_indexes(function.role, storage.file_table, "dated")
        grants.use_items(function.role, storage.state_table, "BatchGetItem", "Query")
        grants.use_items(function.role, storage.run_table, "GetItem", "PutItem", "DeleteItem", "Query")
        grants.describe_executions(function.role, self.settings.named(f"{PIPELINE_MACHINE_PREFIX}*"))
        return function

    def _await_inputs(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            AWAIT_INPUTS,
            # About days that have read data that has failed.
            sends_arrivals=True,
            description="Evaluates what runs wait for, and lets them go on",
            environment={
                **storage.variables("RAW_BUCKET", "FILE_TABLE", "RUN_TABLE", "STATE_TABLE"),
                "PROJECT_URI": self.project.s3_object_url,
                "STATE_MACHINE_PREFIX": states_arn(self, "stateMachine", self.settings.named("")),
            },
            timeout=Duration.minutes(10),
            memory_mb=_AWAIT_MB,
            # As of freeze_inputs, whose listing it repeats.
            disk_mb=4096,
        )
        grants.find_objects(function.role, storage.raw, "raw/")
        waits_for = [name for pipeline in self.parts.project.pipelines.values() for name in pipeline.when.inputs]
        grants.decrypt_sources(function.role, storage.source_keys, waits_for)
        # A verdict has travelled to the versions that have read its data: their manifests say what they have read.
        grants.list_objects(function.role, storage.exchange, "manifests/")
        grants.read_objects(function.role, storage.exchange, "manifests/")
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        grants.use_items(
            function.role, storage.state_table, "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"
        )
        grants.use_items(function.role, storage.run_table, "GetItem")
        allow_answers(function.role, self.settings.named(f"{PIPELINE_MACHINE_PREFIX}*"))
        # By name: the machines may invoke this function.
        live = sorted(name for name, item in self.parts.project.pipelines.items() if item.live and item.live.windows)
        if machines := [self.settings.named(f"{PIPELINE_MACHINE_PREFIX}{name}") for name in live]:
            arns = [states_arn(self, "stateMachine", machine) for machine in machines]
            grants.allow(function.role, ["states:StartExecution"], arns)
        return function

    def _record_run(self) -> LibraryFunction:
        function = self.function(
            "record_run",
            sends_arrivals=True,
            wakes_runs=True,
            sends_lineage=True,
            description="Records the publication or the failure of a run",
            environment={
                **self._storage.variables("RUN_TABLE", "STATE_TABLE"),
                "INTERMEDIATE_DAYS": str(self.settings.intermediate_days),
                **self.cost_values,
            },
            timeout=Duration.minutes(1),
            memory_mb=_RECORD_MB,
        )
        self.allow_costs(function.role)
        # Verdicts are about what the input manifests of the runs list.
        listed = ["manifests/", "runs/"]
        if self.settings.intermediate_days == 0:
            listed.append(ARROW_FILES)
            grants.delete_objects(function.role, self._storage.exchange, ARROW_FILES)
        grants.list_objects(function.role, self._storage.exchange, *listed)
        grants.read_objects(function.role, self._storage.exchange, "manifests/", "runs/")
        grants.use_items(function.role, self._storage.run_table, "GetItem", "PutItem", "DeleteItem", "Query")
        grants.use_items(function.role, self._storage.state_table, "BatchWriteItem", "Query")
        return function

    def _send_lineage(self, receiver: OpenLineage) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            SEND_LINEAGE,
            description="Sends events of OpenLineage about runs",
            environment={
                **storage.variables("RUN_TABLE", "WAREHOUSE_DATABASE"),
                "FILES_PREFIX": storage.files_uri,
                "PROJECT_URI": self.project.s3_object_url,
                "OPENLINEAGE_URL": receiver.url,
                "OPENLINEAGE_SECRET": receiver.api_key_secret or "",
                "OPENLINEAGE_NAMESPACE": receiver.namespace or self.settings.prefix,
                "OUTBOUND_ALLOW": ",".join(self.settings.outbound_allow),
            },
            timeout=Duration.minutes(5),
            memory_mb=_LINEAGE_MB,
        )
        # A receiver that is down for longer misses events: nothing waits for them.
        function.function.configure_async_invoke(retry_attempts=2, max_event_age=Duration.hours(6))
        grants.find_objects(function.role, storage.exchange, "manifests/", "runs/")
        grants.use_items(function.role, storage.run_table, "GetItem")
        if receiver.api_key_secret:
            grants.read_credentials(function.role, receiver.api_key_secret)
        return function

    @property
    def cost_values(self) -> dict[str, str]:
        """The environment of every function that reads what runs and comparisons cost."""
        memory = {"Wait for the inputs": _AWAIT_MB, "Freeze inputs": _FREEZE_MB}
        memory |= {"Record the publication": _RECORD_MB, "Record the failure": _RECORD_MB}
        compare = ("Choose the versions", "Read the comparison", "Plan the split", "Find out why it failed")
        memory |= dict.fromkeys(compare, COMPARE_MB)
        return {
            "APPLICATION_ID": self.spark.id,
            "ARCHITECTURE": self.settings.architecture,
            "FUNCTION_MB": json.dumps(memory),
        }

    def allow_costs(self, role: Grantee, *machines: str) -> None:
        """Let `role` read what runs have used: the histories of their executions, and their Spark jobs.

        `machines` are further state machines, whose executions it may read too.
        """
        for machine in (f"{PIPELINE_MACHINE_PREFIX}*", *machines):
            grants.read_histories(role, self.settings.named(machine))
        allow_job_reads(role, self.spark)

    def _job_role(self, id_: str, description: str, *files: assets.Asset) -> iam.Role:
        """Return a role for jobs, which may read the library, the project, and these files."""
        role = self.spark.new_role(self, id_, description)
        self._allow_files(role, *files)
        return role

    def _allow_files(self, role: Grantee, *files: assets.Asset) -> None:
        for file in (self.project, self._archive, *files):
            grants.read_asset(role, file, settings=self.settings)
        grants.read_jars(role, self.settings.spark_jars)

    def _pull(self, receiver: ReceiverStack) -> StateMachine:
        values = {
            "ListFilesFunction": receiver.list_files.arn,
            "FetchFileFunction": receiver.fetch_file.arn,
            "FetchFileUri": self._fetch_file.s3_object_url,
            "SourceKmsKeys": self._storage.source_keys_value,
            **self.job_values,
            "JobRoleArn": self.pull_role.role_arn,
        }
        role = machine_role(self, "Pull", functions=[receiver.list_files, receiver.fetch_file])
        allow_jobs(role, self.spark)
        pass_role(role, self.pull_role)
        return self.machine(role, PULL_MACHINE, self.parts.machine("pull_source"), values)

    def _pipeline(self, pipeline: Pipeline, definition: Machine) -> None:
        name = pipeline.pipeline
        job_role = self.spark.new_role(self, f"Pipeline-{name}-JobRole", f"Jobs of the pipeline {name}", inline=True)
        job_role.add_managed_policy(self._of_jobs)
        job_permissions.allow_pipeline(job_role, pipeline, storage=self._storage)
        role = machine_role(self, f"Pipeline-{name}-Machine", policies=[self._of_machines])
        pass_role(role, job_role)
        keys = self._storage.source_keys
        values = {
            "AwaitInputsFunction": self.await_inputs.arn,
            "FreezeInputsFunction": self.freeze_inputs.arn,
            "RecordRunFunction": self.record_run.arn,
            **self.job_values,
            "SourceKmsKeys": format_source_keys(
                {source: keys[source] for source in pipeline.sources if source in keys}
            ),
            "VersionDays": str(version_days(pipeline, self.settings)),
            "JobRoleArn": job_role.role_arn,
            "SparkSubmitParameters": self._submit_parameters(pipeline.spark),
        }
        StateMachine(
            self,
            f"Pipeline-{name}",
            settings=self.settings,
            name=f"{PIPELINE_MACHINE_PREFIX}{name}",
            definition=definition,
            values=values,
            role=role,
        )

    @property
    def job_values(self) -> dict[str, str]:
        """The placeholder values of every state machine that runs Spark jobs."""
        return {
            **self._storage.values,
            "ApplicationId": self.spark.id,
            "RunStageUri": self._run_stage.s3_object_url,
            "CompareDayUri": self._compare_day.s3_object_url,
            "ArchiveUri": self._archive.s3_object_url,
            "ProjectUri": self.project.s3_object_url,
            "Region": self.region,
            "SparkSubmitParameters": self._submit_parameters(SparkSizes()),
            "OutboundAllow": ",".join(self.settings.outbound_allow),
            "LogUri": self.log_uri,
        }

    def _submit_parameters(self, sizes: SparkSizes) -> str:
        # Placeholders, because only CloudFormation knows these values: so it substitutes less than this long text.
        return self.spark.submit_parameters(
            archive="${ArchiveUri}", warehouse="s3://${WarehouseBucket}/", region="${Region}", sizes=sizes
        )

    @property
    def log_uri(self) -> str:
        """The S3 prefix of the jobs' logs."""
        return f"s3://{self._storage.exchange.bucket_name}/logs/"
