"""The job of `slackwater doctor --job`."""

from __future__ import annotations

import platform

import pytest
from pyspark.sql.pandas import functions

from glue_jobs.check_release import parse
from slackwater.deploy.check_job import _REMEDIES
from slackwater.errors import AccessDenied, AuditFailed
from slackwater.runs.record import Run
from slackwater.spark import release
from slackwater.spark.release import check_release, import_packages
from slackwater.spark.table import tags_of
from slackwater.steps.spark_errors import explain

TABLE, PREFIX = "warehouse.main._doctor", "s3://exchange/runs/_doctor/2000-01-01/"


@pytest.fixture
def check(spark, stores):
    """Run the check as a run with this id."""

    def check(run_id="a" * 32, *, read_item=lambda: None):
        counts = {"manifest": "", "files": 0, "rows": 0, "bytes": 0, "correlation_id": "c"}
        identity = {"pipeline": "_doctor", "date": "2000-01-01", "run_id": run_id, "attempt": 1}
        run = Run.model_validate({**identity, **counts, "prefix": f"{PREFIX}{run_id}/1/"})
        check_release(spark, run, catalog_table=TABLE, stores=stores, read_item=read_item)

    return check


def test_the_job_commits_what_executors_imported_and_leaves_neither_objects_nor_tags(spark, store, check, monkeypatch):
    # The archive of jobs has no pandas.
    monkeypatch.setattr(functions, "require_minimum_pandas_version", lambda: pytest.fail("pandas is needed"))
    for run_id in ("a" * 32, "b" * 32):  # the row is replaced
        check(run_id)
    [row] = spark.table(TABLE).collect()
    assert row["python"] == platform.python_version()
    assert row["modules"] == import_packages() > 50
    snapshots = spark.table(f"{TABLE}.snapshots").orderBy("committed_at").collect()
    assert [row["summary"]["slackwater.run-id"][0] for row in snapshots] == ["a", "b"]
    assert tags_of(spark, TABLE) == frozenset()
    assert {object_.uri[:-32] for object_ in store.list("s3://exchange/")} == set()


@pytest.mark.parametrize("place", ["driver", "executor"])
def test_an_object_that_cannot_be_written_fails_the_job(store, check, place):
    # A folder stands where the object belongs.
    store.path(f"{PREFIX}{'c' * 32}/1/{place}").mkdir(parents=True)
    with pytest.raises(Exception, match=f"Is a directory: .*/1/{place}'"):
        check("c" * 32)


def test_an_item_that_cannot_be_read_fails_the_job(check):
    def refuse():
        raise AccessDenied("dynamodb:GetItem")

    with pytest.raises(AccessDenied, match="GetItem"):
        check(read_item=refuse)


def test_a_module_that_cannot_be_imported_fails_the_job(check, monkeypatch, tmp_path):
    (tmp_path / "unusable").mkdir()
    (tmp_path / "unusable" / "__init__.py").touch()
    (tmp_path / "unusable" / "part.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(release, "_PACKAGES", ("unusable",))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        check()


def test_an_executor_that_finds_less_than_the_driver_fails_the_job(check, monkeypatch):
    monkeypatch.setattr(release, "_PACKAGES", ("slackwater.arrow",))  # on the driver only
    with pytest.raises(AuditFailed, match=r"_doctor has \["):
        check("d" * 32)


def test_spark_reports_a_missing_iceberg_with_the_words_for_which_the_doctor_has_a_remedy(spark):
    spark.conf.set("spark.sql.catalog.without", "org.apache.iceberg.spark.NoSuchCatalog")
    with pytest.raises(Exception, match="NoSuchCatalog") as raised:
        spark.table("without.main.t").collect()
    last_line = ": ".join(explain(raised.value))
    remedy = next(remedy for words, remedy in _REMEDIES.items() if words in last_line)
    assert "spark_jars=/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar" in remedy


@pytest.mark.parametrize("wrong", ["--run={", "--restore=tag"])
def test_arguments_that_do_not_arrive_as_they_were_sent_are_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        parse(["--run", "{}", "--catalog-table", TABLE, "--run-table", "runs", "--restore=", wrong])
    assert wrong.partition("=")[0] in capsys.readouterr().err
