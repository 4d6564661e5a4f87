"""When a driver can run another program after this one, with a fake JVM whose tasks end as late as a test needs."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from slackwater.local.emr import job_program
from slackwater.local.emr.spark import jvm_mark

pytestmark = pytest.mark.unit


class FakeJvm:
    """Spark's JVM with a session, and a task that ends after its threads were listed this number of times."""

    def __init__(self, listings: int) -> None:
        self.listings, self.session = listings, True
        context = SimpleNamespace(isDefined=lambda: self.session, get=lambda: SimpleNamespace(stop=self.stop))
        active = SimpleNamespace(**{"MODULE$": SimpleNamespace(getActive=lambda: context)})
        spark = SimpleNamespace(**{"SparkContext$": active})
        self.org = SimpleNamespace(apache=SimpleNamespace(spark=spark))
        thread = SimpleNamespace(getAllStackTraces=lambda: SimpleNamespace(keySet=lambda: self))
        self.java = SimpleNamespace(lang=SimpleNamespace(Thread=thread))

    def stop(self) -> None:
        self.session = False

    def toString(self) -> str:  # noqa: N802 - a method of Java
        self.listings -= 1
        task = "Thread[Executor task launch worker for task 0.0 in stage 0.0 (TID 0),5,main]"
        return f"[Thread[main,5,main], {task}]" if self.listings >= 0 else "[Thread[main,5,main]]"


@pytest.mark.parametrize(("listings", "seconds", "idle"), [(0, 60, True), (2, 60, True), (10**9, 0.1, False)])
def test_a_jvm_is_idle_without_a_session_and_after_its_tasks(monkeypatch, listings, seconds, idle):
    monkeypatch.setattr(job_program, "_STOP_SECONDS", seconds)
    jvm = FakeJvm(listings)
    assert job_program.becomes_idle(jvm) is idle
    assert not jvm.session


def test_a_jvm_that_does_not_start_is_marked_as_used_so_that_no_other_job_waits_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(job_program, "_START_SECONDS", 0)
    conf = tmp_path / "conf.json"
    monkeypatch.setattr(sys, "argv", ["job_program.py", str(tmp_path / "connection"), str(conf), "job.py"])
    with pytest.raises(RuntimeError, match="has not started"):
        job_program.main()
    assert jvm_mark(tmp_path).exists()
