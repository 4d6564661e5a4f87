"""Lambda functions that use the library, and the layer that contains it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Duration, Size, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.common import accept, log_group
from infra.settings import Settings


def _runtime(settings: Settings) -> lambda_.Runtime:
    return lambda_.Runtime(f"python{settings.lambda_python}", lambda_.RuntimeFamily.PYTHON)


class Library(Construct):
    """The library's layer. Each stack has its own, so that a new version creates no dependency between stacks."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, artefact: Path, lambdas: Path) -> None:
        """Create the layer from its zip. `lambdas` is the folder of the functions that use it."""
        super().__init__(scope, id_)
        self.settings, self.lambdas = settings, lambdas
        self.layer = lambda_.LayerVersion(
            self,
            "Layer",
            code=lambda_.Code.from_asset(str(artefact)),
            description="The slackwater library and its dependencies",
            compatible_runtimes=[_runtime(settings)],
            compatible_architectures=[lambda_.Architecture.custom(settings.architecture)],
        )


class LibraryFunction(Construct):
    """The function `lambdas/<name>.py`, with its own log group and its own role, which may only write to that group."""

    def __init__(
        self,
        library: Library,
        name: str,
        *,
        description: str,
        environment: Mapping[str, str],
        timeout: Duration,
        memory_mb: int = 512,
        disk_mb: int = 512,
    ) -> None:
        """Create the function in the library's stack."""
        super().__init__(Stack.of(library), name)
        settings = library.settings
        function_name = settings.named(name.replace("_", "-"))
        group = log_group(self, settings=settings, name=f"/aws/lambda/{function_name}")
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=function_name,
            description=description,
            runtime=_runtime(settings),
            architecture=lambda_.Architecture.custom(settings.architecture),
            # Its own module only: a change of another function does not deploy this one again.
            code=lambda_.Code.from_asset(str(library.lambdas), exclude=["*", f"!{name}.py"]),
            handler=f"{name}.handler",
            layers=[library.layer],
            role=self.role,
            timeout=timeout,
            memory_size=memory_mb,
            ephemeral_storage_size=Size.mebibytes(disk_mb),
            log_group=group,
            logging_format=lambda_.LoggingFormat.JSON,
            # Not above INFO, the level of lines without one: metrics are such lines, and Lambda would drop them.
            application_log_level_v2=lambda_.ApplicationLogLevel.DEBUG
            if settings.log_level == "DEBUG"
            else lambda_.ApplicationLogLevel.INFO,
            # X-Ray would need permissions on all resources; the logs carry a correlation id instead.
            tracing=lambda_.Tracing.DISABLED,
            environment={
                **environment,
                "POWERTOOLS_SERVICE_NAME": name,
                "POWERTOOLS_METRICS_NAMESPACE": settings.metric_namespace,
                "POWERTOOLS_LOG_LEVEL": settings.log_level,
            },
        )
        self.arn = self.function.function_arn
        accept(
            self.function,
            {"AwsSolutions-L1": "The runtime matches the Python version of the layer's wheels; it is a setting."},
        )
