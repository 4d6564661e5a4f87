"""Checks of a project against the settings and the artefacts of its deployment."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import timedelta

from infra.constructs.permissions import grants
from infra.settings import Settings
from infra.workers import Worker, capacity_of
from slackwater.errors import DefinitionError
from slackwater.pipeline.spark_workers import SparkSizes
from slackwater.project.project import Project

_COLD_INTERVAL = timedelta(minutes=5)
# Estimates with the list prices of us-east-1: a job each minute whose workers start with it, and a driver and an
# executor of the default sizes that are kept ready.
_MINUTELY_USD, _READY_USD = 864, 160


def check_project(project: Project, settings: Settings, *, missing_steps: Set[str] = frozenset()) -> None:
    """Raise `DefinitionError` that names everything in the project that its Spark jobs could not do.

    `missing_steps` are steps of installed packages that the archive of the jobs lacks.
    """
    problems = [
        *_unknown_steps(project, missing_steps),
        *_workers(project, settings),
        *_own_tables(project, settings),
        *_cold_jobs(project, settings),
        *_teams(project, settings),
    ]
    # Without subnets, a job reaches only S3, Glue, Lake Formation, CloudWatch Logs, KMS, STS, DynamoDB and Secrets
    # Manager in the region of its application ("Other considerations" in the user guide of EMR Serverless).
    if not settings.job_subnets:
        problems += [*_unreachable_files(project), *_unreachable_servers(project)]
    if problems:
        raise DefinitionError("\n".join(problems))


def _unknown_steps(project: Project, missing: Set[str]) -> Iterator[str]:
    for name, pipeline in project.pipelines.items():
        for section, uses in (("steps", pipeline.steps), ("load", pipeline.load)):
            for place, use in uses.items():
                if use.step in missing:
                    yield (
                        f"pipeline {name}: {section}.{place}.step: Spark jobs do not get the package of {use.step}: "
                        "add its wheel or its folder to the setting step_packages"
                    )


def _workers(project: Project, settings: Settings) -> Iterator[str]:
    """Yield for which workers of pipelines the application lacks the capacity."""
    runs = settings.concurrent_runs
    for name, pipeline in sorted(project.pipelines.items()):
        sizes = pipeline.spark
        driver, executor = (
            Worker(size.vcpu, size.memory_gb) if size else worker
            for size, worker in ((sizes.driver, settings.driver), (sizes.executor, settings.executor))
        )
        executors = sizes.max_executors or settings.maximum_executors
        for jobs, count, what in (
            (1, executors, f"a job with a driver and {executors} executors (max_executors)"),
            (runs, 1, f"{runs} jobs (concurrent_runs) with a driver and an executor each"),
        ):
            missing = settings.too_small(capacity_of((jobs, driver), (jobs * count, executor)))
            if missing and sizes != SparkSizes():
                yield (
                    f"pipelines/{name}.yaml: spark: {what} needs {missing}: choose smaller workers, or raise these "
                    "settings"
                )


def _cold_jobs(project: Project, settings: Settings) -> Iterator[str]:
    """Yield the pipelines whose open day is published so often that starting the workers of each job costs too much."""
    is_kept = bool(settings.pre_warmed_drivers and settings.pre_warmed_executors)
    for name, pipeline in sorted(project.pipelines.items()):
        # A job does not use a worker that is smaller than its own parameters ask for.
        sizes = ((pipeline.spark.driver, settings.driver), (pipeline.spark.executor, settings.executor))
        fits = all(not own or (own.vcpu <= kept.vcpu and own.memory_gb <= kept.memory_gb) for own, kept in sizes)
        if pipeline.live and pipeline.live.interval < _COLD_INTERVAL and not (is_kept and fits):
            usd = _MINUTELY_USD * timedelta(minutes=1) / pipeline.live.interval
            yield (
                f"pipelines/{name}.yaml: live.every: {pipeline.live.every} starts new workers for each job, about "
                f"{usd:,.0f} USD a month: keep workers ready (about {_READY_USD} USD a month: set pre_warmed_drivers "
                "and pre_warmed_executors to 1, and let `spark` ask for no larger ones), or use 5m or more"
            )


def _own_tables(project: Project, settings: Settings) -> Iterator[str]:
    """Yield the tables of other systems that this deployment writes: days would run again after what runs cause."""
    for name, pipeline in sorted(project.pipelines.items()):
        for table, foreign in pipeline.foreign_tables.items():
            if foreign.name[0] in {settings.raw_database, settings.warehouse_database}:
                yield (
                    f"pipelines/{name}.yaml: tables.{table}.iceberg: this deployment writes {foreign.iceberg} itself: "
                    "name the source in `sources`, or read the days of a pipeline with `table`"
                )


def _teams(project: Project, settings: Settings) -> Iterator[str]:
    """Yield the teams that own no table, and addresses that SNS would have to subscribe twice."""
    owners = {pipeline.team for pipeline in project.pipelines.values()} - {""}
    for name, team in settings.teams.items():
        if name not in owners:
            known = f" (teams of pipelines: {', '.join(sorted(owners))})" if owners else ""
            yield f"setting teams.{name}: no pipeline has `team: {name}`{known}: correct the name, or remove the team"
        for address in set(team.emails) & set(settings.change_emails):
            yield (
                f"setting teams.{name}.emails: {address} gets all messages by change_emails, and can have one "
                "subscription: remove it from one of them"
            )


def _unreachable_files(project: Project) -> Iterator[str]:
    """Yield the sources whose largest files are meant to be fetched by jobs, which do not reach them."""
    for name, source in sorted(project.sources.items()):
        pull = source.pull
        if pull and pull.scheme != "s3" and (pull.max_file_mb or 0) > pull.function_mb:
            yield (
                f"sources/{name}.yaml: pull.max_file_mb: without the setting job_subnets, the jobs that fetch files "
                f"larger than pull.function_mb ({pull.function_mb}) reach no partner over {pull.scheme}: "
                f"set pull.max_file_mb to at most {pull.function_mb}, or remove it, so that larger files fail, or set "
                "job_subnets to private subnets with a NAT gateway, and job_security_groups"
            )


def _unreachable_servers(project: Project) -> Iterator[str]:
    """Yield the steps with a `url`."""
    for pipeline, place, _ in grants.step_values(project.pipelines.values(), "url"):
        yield (
            f"pipelines/{pipeline}.yaml: {place}: without the setting job_subnets, jobs reach no server outside of AWS "
            "and no database in a network: set job_subnets to private subnets, with a NAT gateway for servers outside, "
            "and job_security_groups"
        )
