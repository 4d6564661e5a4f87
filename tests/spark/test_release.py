"""The job of `slackwater doctor --job`."""

from __future__ import annotations

import platform

import pytest

from slackwater.errors import AuditFailed
from slackwater.steps.spark import release
from slackwater.steps.spark.release import check_release, import_packages

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def test_the_job_writes_what_executors_imported_and_reads_it(spark):
    for _ in range(2):  # the table is replaced
        check_release(spark, "warehouse.main._check_release")
    [row] = spark.table("warehouse.main._check_release").collect()
    assert row["python"] == platform.python_version()
    assert row["modules"] == import_packages() > 50


def test_a_module_that_cannot_be_imported_fails_the_job(spark, monkeypatch, tmp_path):
    (tmp_path / "unusable").mkdir()
    (tmp_path / "unusable" / "__init__.py").touch()
    (tmp_path / "unusable" / "part.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(release, "_PACKAGES", ("unusable",))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        check_release(spark, "warehouse.main._check_release")


def test_an_executor_that_finds_less_than_the_driver_fails_the_job(spark, monkeypatch):
    monkeypatch.setattr(release, "_PACKAGES", ("slackwater.arrow",))  # on the driver only
    with pytest.raises(AuditFailed, match=r"_check_release has \["):
        check_release(spark, "warehouse.main._check_release")
