"""Settings of a deployment, other projects and prefixes, and placeholders of state machines."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from aws_cdk import Token
from pydantic import ValidationError

from infra.app import ROOT
from infra.constructs.state_machine import fill_placeholders
from infra.lint import context, placeholder_artefacts, synthesise
from infra.settings import Settings, load_settings
from infra.workers import LARGE_FILE_DISK_GB, Worker, heap_mb
from slackwater.errors import DefinitionError
from slackwater.local.emr.billing import read_workers
from slackwater.local.emr.submit import IMAGE_PYTHONS
from slackwater.pipeline.spark_workers import MEMORY_GB, WorkerSize
from tests.infra.assembly import Assembly, parts_of, settings_of, submit_parameters, synthesised

pytestmark = pytest.mark.infra

_SOURCE = """
source: tides
timestamp: {field: at, timezone: Europe/London}
fields: {at: timestamp, port: {type: string, required: true}, metres: double, spring: boolean, day: date}
push: {}
"""
_PIPELINE = """
pipeline: heights
timezone: UTC
sources: [tides]
steps:
  highest: {step: sql, depends_on: [tides], with: {query: "SELECT port, max(metres) AS m FROM tides GROUP BY port"}}
publish: {step: highest, key: [date, port]}
spark: {executor: {vcpu: 4, memory_gb: 16}, max_executors: 1}
"""


def test_the_settings_of_the_repository_are_valid() -> None:
    assert load_settings(context()) == Settings()


def test_python_and_architecture_do_not_depend_on_the_machine_that_deploys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    settings = load_settings(context())
    assert (settings.lambda_python, settings.spark_python, settings.architecture) == ("3.13", "3.11", "x86_64")


def test_a_job_may_have_each_python_that_emr_has() -> None:
    assert get_args(Settings.model_fields["spark_python"].annotation) == IMAGE_PYTHONS


def test_a_setting_may_be_a_string_from_the_command_line() -> None:
    assert load_settings({"slackwater:concurrent_runs": "3", "aws:other": 1}).concurrent_runs == 3


_ALIAS = "arn:aws:kms:eu-west-1:123456789012:alias/mine"
_TWO_ZONES = "airflow_zones: name two different zones"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"no_such": 1}, "no_such"),
        ({"prefix": "Upper Case"}, "prefix"),
        ({"prefix": "acme-pipeline"}, "prefix: 'acme-pipeline' contains -pipeline, with which names of another"),
        ({"prefix": "acme-arrivals-eu"}, "prefix: 'acme-arrivals-eu' contains -arrivals"),
        ({"lambda_python": "3.10"}, "lambda_python"),
        ({"spark_python": "3.14"}, "spark_python"),
        ({"architecture": "sparc"}, "architecture"),
        ({"removal_policy": "maybe"}, "removal_policy"),
        ({"log_retention_days": 29}, "log_retention_days"),
        *(({"emr_release": value}, "emr_release") for value in ("latest", "emr-7.13.0")),
        *(
            ({"spark_jars": value}, "spark_jars")
            for value in ("/usr/lib/first.jar, iceberg.jar", "https://code/first.jar", "s3://code")
        ),
        ({"maximum_vcpu": 0}, "maximum_vcpu"),
        ({"queue_minutes": 1}, "queue_minutes"),
        *(({"schedule": value}, "schedule") for value in ("cron", True, "")),
        ({"airflow": True}, "airflow"),
        *(({"airflow_zones": value}, _TWO_ZONES) for value in ("eu-west-1a", "eu-west-1a,eu-west-1a")),
        ({"airflow_zones": "eu-west-1a,eu-west-1b,eu-west-1c"}, _TWO_ZONES),
        # A zone has the name of its region and a letter.
        ({"airflow_zones": "eu-west-1a,eu-west-1"}, "airflow_zones.1"),
        *(({"alarm_emails": value}, "alarm_emails") for value in ("nobody", "a b@example.org", "@")),
        ({"teams": "operations"}, "teams: it is not JSON"),
        ({"teams": {"operations": {}}}, "teams.operations: it has neither emails nor a queue"),
        ({"teams": {"operations": {"emails": ["a@b"], "severities": ["bad"]}}}, "teams.operations.severities"),
        ({"teams": {"operations": {"queue": "changes"}}}, "teams.operations.queue"),
        ({"teams": {name: {"emails": ["a@b"]} for name in ("x", "y")}}, "teams: a@b is named twice"),
        ({"teams": {"x": {"emails": [f"{n}@b" for n in range(201)]}}}, "teams: there are 201 addresses and queues"),
        ({"openlineage": "marquez"}, "openlineage: it is not JSON"),
        *(
            ({"openlineage": {"url": url}}, "openlineage.url: ")
            for url in ("marquez.example", "ftp://marquez.example", "https://ana:x@marquez.example", "https://x/?y=1")
        ),
        ({"openlineage": {"url": "https://x.example", "api_key_secret": "abc"}}, "openlineage.api_key_secret: "),
        ({"openlineage": {"url": "https://x.example", "key": "abc"}}, "openlineage.key: "),
        # The range of AWS WAF.
        *(({"waf_requests_per_ip": value}, "waf_requests_per_ip") for value in ("9", "2000000001")),
        *(({"kms_key": value}, "kms_key") for value in ("alias/mine", _ALIAS, "new")),
        ({"source_kms_keys": "flights"}, "source_kms_keys: 'flights' is not of the form source=ARN"),
        *(
            ({"source_kms_keys": value}, "source_kms_keys.flights: ")
            for value in ("flights=create", {"flights": _ALIAS})
        ),
        *(
            ({name: value}, "job_subnets and job_security_groups: set both, or neither")
            for name, value in (("job_subnets", "subnet-1"), ("job_security_groups", "sg-1"))
        ),
        ({"environment": "production"}, "environment: 'production' is none of dev, staging, prod"),
        (
            {"environments": {"prod": {"acount": "1"}}},
            "cdk.json: slackwater:environments.prod.acount: there is no such",
        ),
        # `dev` is deployed, and the mistake is in `prod`.
        (
            {"environment": "dev", "environments": {"prod": {"environment": "dev"}}},
            "slackwater:environments.prod.environment: there is no such setting",
        ),
        (
            {"environment": "prod", "environments": {"prod": {"account": 123}}},
            "account: Input should be a valid string",
        ),
        ({"environment": "prod", "environments": {"prod": {"region": "Frankfurt"}}}, "region: "),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        settings_of(**values)


@pytest.mark.parametrize(
    ("key", "value"), [("driver_cores", "2"), ("executor_cores", "4"), ("log_retention_days", "7")]
)
def test_a_setting_with_a_list_of_numbers_may_be_a_string_from_the_command_line(key: str, value: str) -> None:
    assert getattr(settings_of(**{key: value, "executor_memory_gb": "8"}), key) == int(value)


class TestCapacity:
    def test_by_default_all_jobs_with_all_their_executors_fit_into_the_quota_of_a_new_account(self) -> None:
        settings = Settings()
        driver, executor, executors = settings.driver, settings.executor, settings.maximum_executors
        assert settings.maximum_vcpu == 16
        assert settings.concurrent_runs * (driver.vcpu + executors * executor.vcpu) <= 16
        assert settings.concurrent_runs * (driver.memory_gb + executors * executor.memory_gb) <= (
            settings.maximum_memory_gb
        )

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"concurrent_runs": 15},
                "15 jobs with a driver and an executor each need maximum_vcpu = 45, maximum_memory_gb = 165, "
                "maximum_disk_gb = 3300: raise these settings, or lower concurrent_runs to 3",
            ),
            (
                {"maximum_vcpu": 8},
                "need maximum_vcpu = 9: raise these settings, or lower concurrent_runs to 2",
            ),
            ({"maximum_memory_gb": 32}, "need maximum_memory_gb = 33: raise"),
            ({"maximum_disk_gb": 219}, "need maximum_disk_gb = 660: raise these settings, or choose smaller workers"),
            (
                {"pre_warmed_drivers": 1, "pre_warmed_executors": 8},
                "pre_warmed_drivers, pre_warmed_executors: 1 drivers and 8 executors need maximum_vcpu = 17: raise",
            ),
        ],
    )
    def test_jobs_that_do_not_fit_are_refused_with_the_settings_to_change(
        self, settings: dict[str, int], message: str
    ) -> None:
        with pytest.raises(DefinitionError, match=re.escape(message)):
            settings_of(**settings)

    def test_the_capacity_of_exactly_the_concurrent_jobs_is_enough(self) -> None:
        Settings(concurrent_runs=15, maximum_vcpu=45, maximum_memory_gb=165, maximum_disk_gb=3300)

    @pytest.mark.parametrize(
        ("cores", "smallest", "largest"), [(1, 1, 7), (2, 3, 14), (4, 7, 27), (8, 11, 54), (16, 22, 109)]
    )
    def test_only_memory_that_emr_offers_with_these_cores_is_accepted(
        self, cores: int, smallest: int, largest: int
    ) -> None:
        def settings(memory_gb: int) -> Settings:
            capacity = {"concurrent_runs": 1, "maximum_vcpu": 32, "maximum_memory_gb": 200}
            return Settings(executor_cores=cores, executor_memory_gb=memory_gb, **capacity)

        for memory_gb in (smallest, largest):
            conf = {"spark.executor.cores": str(cores), "spark.executor.memory": f"{memory_gb}g"}
            executor = read_workers(conf).executor
            assert settings(memory_gb).executor == executor
        refused = (
            rf"executor_memory_gb: a worker of {cores} vCPU has \d+ to \d+ GB.*choose {smallest} to {largest}, not"
        )
        for memory_gb in {smallest - 1, largest + 1} - {0}:
            with pytest.raises(ValidationError, match=refused):
                settings(memory_gb)

    @pytest.mark.parametrize(("vcpu", "limits"), MEMORY_GB.items())
    def test_a_worker_of_a_pipeline_is_the_one_that_its_job_gets(self, vcpu: int, limits: tuple[int, int, int]) -> None:
        minimum, maximum, step = limits
        for memory_gb in range(minimum, maximum + 1, step):
            size = WorkerSize(vcpu=vcpu, memory_gb=memory_gb)
            conf = {"spark.driver.cores": str(vcpu), "spark.driver.memory": f"{heap_mb(size)}m"}
            assert read_workers(conf).driver == Worker(vcpu, memory_gb)

    def test_the_disk_of_a_job_that_fetches_a_large_file_is_the_one_that_is_counted(self) -> None:
        machine = (ROOT / "step_functions" / "pull_source.asl.json").read_text()
        assert f"spark.emr-serverless.driver.disk={LARGE_FILE_DISK_GB}g" in machine


def test_every_wrong_setting_is_named_in_one_error() -> None:
    with pytest.raises(DefinitionError, match=r"(?s)idle_minutes.*concurrent_runs"):
        settings_of(idle_minutes=0, concurrent_runs=1001)


def test_another_project_has_its_own_tables_and_machines_under_its_own_prefix(tmp_path: Path) -> None:
    project = tmp_path / "ports"
    for folder, name, content in (("sources", "tides", _SOURCE), ("pipelines", "heights", _PIPELINE)):
        (project / folder).mkdir(parents=True)
        (project / folder / f"{name}.yaml").write_text(content)
    values = {
        "project": str(project),
        "removal_policy": "destroy",
        "pre_warmed_drivers": 1,
        "pre_warmed_executors": 2,
        "lambda_python": "3.12",
        "spark_python": "3.13",
        "architecture": "arm64",
        "parallel_days": 2,
        "oidc_issuer": "https://id.example/ports",
        "oidc_audience": "sea",
        "outbound_allow": "10.20.0.0/16, files.example:8443",
    }
    deployed = synthesised(tmp_path, prefix="sea-two", **values)
    storage, processing = deployed.templates["sea-two-storage"], deployed.templates["sea-two-processing"]
    assert storage["Outputs"]["RawDatabase"]["Value"] == "sea_two_raw"
    machines = deployed.machines()
    assert {"sea-two-pull-source", "sea-two-pipeline-heights"} < set(machines)
    monitor = json.loads(machines["sea-two-monitor-days"])
    assert monitor["States"]["Handle the late days"]["MaxConcurrency"] == 2
    assert {of["DeletionPolicy"] for of in storage["Resources"].values() if "DeletionPolicy" in of} == {"Delete"}
    [application] = deployed.properties("AWS::EMRServerless::Application").values()
    assert application["Architecture"] == "ARM64"
    capacity = {entry["Key"]: entry["Value"] for entry in application["InitialCapacity"]}
    assert (capacity["Driver"]["WorkerCount"], capacity["Executor"]["WorkerCount"]) == (1, 2)
    assert capacity["Executor"]["WorkerConfiguration"]["Memory"] == "7 GB"
    # The pipeline has an executor of its own; its driver is that of the settings.
    machine = deployed.one("AWS::StepFunctions::StateMachine", "Pipelineheights")
    conf = dict(re.findall(r"--conf (\S+?)=(\S+)", submit_parameters(machine, deployed.folder)))
    assert read_workers(conf) == (Settings().driver, Worker(4, 16), 1)
    assert conf["spark.dynamicAllocation.maxExecutors"] == "1"
    for name in ("emr-serverless.driverEnv.PYSPARK_PYTHON", "emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"):
        assert f"--conf spark.{name}=python3.13 " in json.dumps(processing)
    assert "--conf spark.executorEnv.PYSPARK_PYTHON=python3.13 " in json.dumps(processing)
    functions = deployed.properties("AWS::Lambda::Function", "FunctionName")
    environment = functions["sea-two-receive-events"]["Environment"]["Variables"]
    assert (environment["OIDC_ISSUER"], environment["OIDC_AUDIENCE"]) == ("https://id.example/ports", "sea")
    assert environment["OUTBOUND_ALLOW"] == "10.20.0.0/16,files.example:8443"
    assert {of["Runtime"] for of in functions.values()} == {"python3.12"}


def test_a_missing_project_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="nowhere"):
        synthesised(tmp_path, project=str(tmp_path / "nowhere"))


def test_a_placeholder_without_a_value_stops_synthesis(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("lambdas", "glue_jobs", "step_functions", "examples"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copy(ROOT / "cdk.json", root)
    frame = root / "step_functions" / "pipeline.asl.json"
    frame.write_text(frame.read_text().replace("${LogUri}", "${LogPlace}"))
    with pytest.raises(DefinitionError, match=r"pipeline-daily_delays: no value for \$\{LogPlace\}"):
        synthesise(tmp_path / "cdk.out", settings=Settings(), artefacts=placeholder_artefacts(tmp_path), root=root)


def test_a_machine_gets_the_values_of_its_placeholders_only() -> None:
    machine = {"States": {"A": {"Resource": "${Here}", "B": ["x${There}y", "${Empty}", "${Later}"]}}}
    later = Token.as_string({"Ref": "Bucket"})
    values = {"Here": '1 "a"', "There": "2", "Empty": "", "Elsewhere": "3", "Later": later, "Never": later}
    definition, substitutions = fill_placeholders(machine, values, name="m")
    assert json.loads(definition) == {"States": {"A": {"Resource": '1 "a"', "B": ["x2y", "", "${Later}"]}}}
    assert substitutions == {"Later": later}


def test_an_unreadable_machine_is_named(tmp_path: Path) -> None:
    parts = replace(parts_of(Settings()), root=tmp_path)
    (tmp_path / "step_functions").mkdir()
    (tmp_path / "step_functions" / "wrong.asl.json").write_text("{")
    with pytest.raises(DefinitionError, match=r"wrong\.asl\.json: not readable as JSON"):
        parts.machine("wrong")
    with pytest.raises(DefinitionError, match="no state machine at"):
        parts.machine("none")


def test_synthesis_reads_nothing_from_an_account_or_region(assembly: Assembly) -> None:
    assert "availability-zones" not in json.dumps(assembly.manifest())


def test_a_receiver_of_lineage_is_given_as_an_object_or_as_json() -> None:
    receiver = {"url": "https://marquez.example/lineage", "api_key_secret": "ssm:/marquez"}
    for value in (receiver, json.dumps(receiver)):
        found = load_settings({"slackwater:openlineage": value}).openlineage
        assert found is not None
        assert (found.url, found.api_key_secret, found.namespace) == (*receiver.values(), None)
    assert load_settings({}).openlineage is None
