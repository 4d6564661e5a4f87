"""When the JVM of a driver is idle after a program, with a fake JVM whose tasks end as late as a test needs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slackwater.local.emr import job_program

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


@pytest.mark.parametrize(("listings", "idle"), [(0, True), (2, True), (10**9, False)])
def test_a_jvm_is_idle_without_a_session_and_after_its_tasks(monkeypatch, listings, idle):
    monkeypatch.setattr(job_program, "_STOP_SECONDS", 0.1)
    jvm = FakeJvm(listings)
    assert job_program.becomes_idle(jvm) is idle
    assert not jvm.session
