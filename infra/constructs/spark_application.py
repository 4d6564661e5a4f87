"""The EMR Serverless application, the roles of its jobs, and the Spark parameters of every job."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.permissions.roles import InlineRole
from infra.settings import Settings
from infra.workers import heap_mb
from slackwater.pipeline.spark_workers import SparkSizes

_ICEBERG = "org.apache.iceberg"


class SparkApplication(Construct):
    """An application that starts with its first job, stops when idle, and has a maximum capacity."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings) -> None:
        super().__init__(scope, id_)
        self._settings = settings
        self.application = emr.CfnApplication(
            self,
            "Application",
            name=settings.prefix,
            type="SPARK",
            release_label=settings.emr_release,
            architecture=settings.architecture.upper(),
            auto_start_configuration={"enabled": True},
            auto_stop_configuration={"enabled": True, "idleTimeoutMinutes": settings.idle_minutes},
            maximum_capacity={
                "cpu": f"{settings.maximum_vcpu} vCPU",
                "memory": f"{settings.maximum_memory_gb} GB",
                "disk": f"{settings.maximum_disk_gb} GB",
            },
            scheduler_configuration={
                "maxConcurrentRuns": settings.concurrent_runs,
                "queueTimeoutMinutes": settings.queue_minutes,
            },
            initial_capacity=_ready_workers(settings) or None,
            network_configuration={
                "subnetIds": list(settings.job_subnets),
                "securityGroupIds": list(settings.job_security_groups),
            }
            if settings.job_subnets
            else None,
        )
        self.id = self.application.attr_application_id
        self.arn = self.application.attr_arn

    def new_role(self, scope: Construct, id_: str, description: str, *, inline: bool = False) -> iam.Role:
        """Return a role for jobs of this application, without permissions; `inline` makes it an `InlineRole`."""
        return (InlineRole if inline else iam.Role)(
            scope,
            id_,
            description=description,
            # The conditions keep EMR Serverless from using the role for another application or account.
            assumed_by=iam.ServicePrincipal(
                "emr-serverless.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Stack.of(self).account},
                    "ArnLike": {"aws:SourceArn": self.arn},
                },
            ),
        )

    def submit_parameters(self, *, archive: str, warehouse: str, region: str, sizes: SparkSizes | None = None) -> str:
        """Return the `sparkSubmitParameters` of a job: the library, the Iceberg catalog `warehouse`, the worker sizes.

        Sizes that are not in `sizes` are those of the settings.
        """
        settings, python = self._settings, f"python{self._settings.spark_python}"
        sizes = sizes or SparkSizes()
        driver, executor = sizes.driver, sizes.executor
        conf = {
            "spark.driver.cores": str(driver.vcpu if driver else settings.driver_cores),
            "spark.driver.memory": f"{heap_mb(driver)}m" if driver else f"{settings.driver_memory_gb}g",
            "spark.executor.cores": str(executor.vcpu if executor else settings.executor_cores),
            "spark.executor.memory": f"{heap_mb(executor)}m" if executor else f"{settings.executor_memory_gb}g",
            # A day is small, so a job starts with one executor. Spark starts the larger of these two numbers, and EMR's
            # default is three for both.
            "spark.executor.instances": "1",
            "spark.dynamicAllocation.initialExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(sizes.max_executors or settings.maximum_executors),
            "spark.archives": f"{archive}#environment",
            "spark.emr-serverless.driverEnv.PYTHONPATH": "./environment",
            "spark.executorEnv.PYTHONPATH": "./environment",
            # AWS documents that jobs get credentials, but no region. A client may be created after a commit.
            "spark.emr-serverless.driverEnv.AWS_REGION": region,
            "spark.executorEnv.AWS_REGION": region,
            # The archive's compiled modules load in this Python only. A bare name, because AWS documents no path.
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": python,
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": python,
            "spark.executorEnv.PYSPARK_PYTHON": python,
            "spark.sql.extensions": f"{_ICEBERG}.spark.extensions.IcebergSparkSessionExtensions",
            # The session catalog is not used, so the role needs no permissions on Glue's database `default`.
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.catalog.warehouse": f"{_ICEBERG}.spark.SparkCatalog",
            "spark.sql.catalog.warehouse.type": "glue",
            # A job must see the current table, including commits that jobs of other days have just made.
            "spark.sql.catalog.warehouse.cache-enabled": "false",
            "spark.sql.catalog.warehouse.warehouse": warehouse,
            "spark.sql.catalog.warehouse.io-impl": f"{_ICEBERG}.aws.s3.S3FileIO",
        }
        # Only if set: a job fails at once if the image lacks a jar that it names. That the image of emr-spark-8 has
        # Iceberg on its class path is an assumption: "Using Apache Iceberg with EMR Serverless" still names a path.
        if settings.spark_jars:
            conf["spark.jars"] = ",".join(settings.spark_jars)
        return " ".join(f"--conf {key}={value}" for key, value in conf.items())


def _ready_workers(settings: Settings) -> list[Any]:
    """Return pre-initialised workers. A job does not use one that is smaller than its own parameters ask for."""
    return [
        {
            "key": worker_type,
            "value": {
                "workerCount": count,
                "workerConfiguration": {
                    "cpu": f"{size.vcpu} vCPU",
                    "memory": f"{size.memory_gb} GB",
                    "disk": f"{size.disk_gb} GB",
                },
            },
        }
        for worker_type, count, size in (
            ("Driver", settings.pre_warmed_drivers, settings.driver),
            ("Executor", settings.pre_warmed_executors, settings.executor),
        )
        if count
    ]
