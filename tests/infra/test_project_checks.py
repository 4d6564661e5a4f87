"""A project that its deployed jobs could not run is refused, with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from infra.project_checks import check_project
from infra.settings import Settings
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.infra

_FTP = {
    "url": "sftp://files.example/x",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk2sL++5mySabi+ODUdHJUi/kpIlwq+KFPdtRylkMtc",
    "credentials": "ssm:/acme/sftp",
}


def _files_of(**pull: Any) -> Project:
    return Project(sources={"things": a_source(pull={"files": "{date}", **pull})}, pipelines={})


@pytest.mark.parametrize(
    "pull", [{"url": "https://files.example/x", "max_file_mb": 1025}, {**_FTP, "max_file_mb": 1025}]
)
def test_a_source_whose_large_files_no_job_can_reach_is_refused_with_the_remedy(pull: dict[str, Any]) -> None:
    """A job of the local cloud reaches every partner; on AWS it would wait for the connection and fail."""
    with pytest.raises(DefinitionError) as refused:
        check_project(_files_of(**pull), Settings())
    assert str(refused.value).startswith("sources/things.yaml: pull.max_file_mb: without the setting job_subnets")
    assert "set job_subnets to private subnets with a NAT gateway" in str(refused.value)
    assert "set pull.max_file_mb to at most 1024" in str(refused.value)


@pytest.mark.parametrize(
    ("pull", "subnets"),
    [
        ({"url": "https://files.example/x", "max_file_mb": 1024}, ()),
        ({"url": "https://files.example/x"}, ()),
        (_FTP, ()),
        ({"url": "https://files.example/x"}, ("subnet-1",)),
        ({"url": "s3://exports/acme"}, ()),
        ({"url": "s3://exports/acme", "role": "arn:aws:iam::210987654321:role/exports"}, ()),
    ],
)
def test_a_source_is_deployed_if_functions_or_jobs_can_fetch_all_its_files(
    pull: dict[str, Any], subnets: tuple[str, ...]
) -> None:
    check_project(_files_of(**pull), Settings(job_subnets=subnets, job_security_groups=["sg-1"] if subnets else []))


def piped(**parts: Any) -> Project:
    """A project with one pipeline."""
    rates = {"step": "read_api", "with": {"url": "https://api.example"}}
    steps = {"rates": rates, "end": {"step": "sql", "depends_on": ["rates", "s"]}}
    definition = {
        "pipeline": "p",
        "sources": ["s"],
        "steps": steps,
        "publish": {"step": "end", "key": ["date"]},
        **parts,
    }
    return Project(sources={}, pipelines={"p": Pipeline.model_validate(definition)})


def test_servers_of_steps_need_subnets() -> None:
    check_project(piped(), Settings(job_subnets=["subnet-1"], job_security_groups=["sg-1"]))
    with pytest.raises(DefinitionError, match=r"pipelines/p.yaml: steps.rates.with.url: without the setting job_sub"):
        check_project(piped(), Settings())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"max_executors": 8},
            "a job with a driver and 8 executors (max_executors) needs maximum_vcpu = 17: choose smaller workers, "
            "or raise these settings",
        ),
        (
            {"driver": {"vcpu": 2, "memory_gb": 16}, "executor": {"vcpu": 4, "memory_gb": 16}, "max_executors": 1},
            "3 jobs (concurrent_runs) with a driver and an executor each needs maximum_vcpu = 18, "
            "maximum_memory_gb = 96: choose smaller workers, or raise these settings",
        ),
    ],
)
def test_workers_of_a_pipeline_that_exceed_the_application_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError) as error:
        check_project(piped(spark=sizes), Settings())
    assert f"pipelines/p.yaml: spark: {message}" in str(error.value).splitlines()


def test_a_step_that_jobs_do_not_get_is_an_error_that_names_the_setting(project: Project) -> None:
    with pytest.raises(
        DefinitionError, match=r"steps\.\w+\.step: Spark jobs do not get the package of join: .*step_pack"
    ):
        check_project(project, Settings(), missing_steps={"join"})
    check_project(project, Settings())


def test_a_team_without_a_pipeline_and_an_address_with_two_subscriptions_are_refused() -> None:
    teams = {name: {"emails": [f"{name}@example.org"]} for name in ("operations", "finanse")}
    subnets = {"job_subnets": ["subnet-1"], "job_security_groups": ["sg-1"]}
    with pytest.raises(DefinitionError) as refused:
        check_project(
            piped(team="operations"), Settings(teams=teams, change_emails=["operations@example.org"], **subnets)
        )
    assert str(refused.value).splitlines() == [
        "setting teams.operations.emails: operations@example.org gets all messages by change_emails, and can have one "
        "subscription: remove it from one of them",
        "setting teams.finanse: no pipeline has `team: finanse` (teams of pipelines: operations): correct the name, or "
        "remove the team",
    ]


@pytest.mark.parametrize("database", ["mine_dev_raw", "mine_dev_warehouse"])
def test_a_table_that_the_deployment_itself_writes_is_refused_as_the_table_of_another_system(database: str) -> None:
    tables = {"t": {"iceberg": f"{database}.former", "location": "s3://lake/former"}}
    project = piped(sources=[], tables=tables, steps={"end": {"step": "sql", "depends_on": ["t"]}})
    check_project(project, Settings(prefix="other"))
    with pytest.raises(DefinitionError) as refused:
        check_project(project, Settings(prefix="mine-dev"))
    assert str(refused.value) == (
        f"pipelines/p.yaml: tables.t.iceberg: this deployment writes {database}.former itself: name the source in "
        "`sources`, or read the days of a pipeline with `table`"
    )


@pytest.mark.parametrize(
    ("every", "settings", "usd"),
    [
        ("60s", {}, "864"),
        ("4m", {"pre_warmed_executors": 1}, "216"),
        ("60s", {"pre_warmed_drivers": 1, "pre_warmed_executors": 1}, None),
        ("5m", {}, None),
    ],
)
def test_an_open_day_that_is_published_often_needs_workers_that_are_kept_ready(
    every: str, settings: dict[str, int], usd: str | None
) -> None:
    steps = {"end": {"step": "sql", "depends_on": ["s"], "with": {"query": "SELECT 1 AS n FROM s"}}}
    project, deployed = piped(steps=steps, live={"every": every}), Settings(**settings)
    if usd is None:
        check_project(project, deployed)
        return
    with pytest.raises(DefinitionError) as refused:
        check_project(project, deployed)
    assert str(refused.value) == (
        f"pipelines/p.yaml: live.every: {every} starts new workers for each job, about {usd} USD a month: keep workers "
        "ready (about 160 USD a month: set pre_warmed_drivers and pre_warmed_executors to 1, and let `spark` ask for "
        "no larger ones), or use 5m or more"
    )


def test_workers_that_are_kept_ready_must_be_as_large_as_the_job_asks_for() -> None:
    steps = {"end": {"step": "sql", "depends_on": ["s"], "with": {"query": "SELECT 1 AS n FROM s"}}}
    kept = Settings(pre_warmed_drivers=1, pre_warmed_executors=1)
    small, large = ({"driver": {"vcpu": vcpu, "memory_gb": 4 * vcpu}} for vcpu in (1, 2))
    check_project(piped(steps=steps, live={"every": "60s"}, spark=small), kept)
    with pytest.raises(DefinitionError, match=r"live\.every: 60s starts new workers"):
        check_project(piped(steps=steps, live={"every": "60s"}, spark=large), kept)
