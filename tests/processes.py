"""Which tests run in which of the three processes of `make test`, and in which order."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.step_package import show_site

OWN_CLOUDS = ("tests/cloud/test_scenario.py", "tests/cloud/test_empty_folder.py")
"""Tests that start clouds of their own.

A process that has two tests left gets the next group: the file of two tests comes last, or one process gets both.
"""
BARE_CLOUD = (
    "tests/cloud/test_alarm_stacks.py",
    "tests/cloud/test_emr_serverless.py",
    "tests/cloud/test_executors.py",
    "tests/cloud/test_s3_contract.py",
    "tests/airflow/test_emr_operators.py",
)
"""Tests that share a cloud in which nothing is deployed."""
SECOND_CLOUD = ("tests/cloud/test_late_days.py", "tests/cloud/test_chain.py")
"""Tests of the shared cloud that need most time: in another process, with a cloud of that process."""
THIRD_PROCESS = "gw2"
SITES: list[Path] = []
"""The folder with the package of steps that the shared cloud's project uses, as soon as it exists."""
GROUPS = ("cloud", "spark", *OWN_CLOUDS, "second cloud", "infra", "bare")
"""Groups of tests that share a cloud, a Spark session or templates, in the order in which processes start them."""
LAST_ON_THE_CLOUD = ("tests/airflow/test_runs.py", "tests/cloud/test_recovery.py", "tests/cloud/test_versions.py")
"""The tests of the group `cloud` that run after the others, in this order.

The second ones kill the cloud. The third ones leave a notification for which a monitoring would start a job.
"""


def group_of(file: str) -> str:
    """Return the group that a test file runs with: the folder's, the cloud's, or the file itself."""
    if file in LAST_ON_THE_CLOUD:
        return "cloud"
    if file in BARE_CLOUD:
        return "bare"
    if file in SECOND_CLOUD:
        return "second cloud"
    group = next((folder for folder in Path(file).parts if folder in GROUPS), None)
    return group if group and file not in OWN_CLOUDS else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slow groups first; the short files keep all processes busy until the end."""

    def order(item: pytest.Item) -> tuple[int, int]:
        file = item.nodeid.partition("::")[0]
        group = group_of(file)
        return (
            GROUPS.index(group) if group in GROUPS else len(GROUPS),
            LAST_ON_THE_CLOUD.index(file) if file in LAST_ON_THE_CLOUD else -1,
        )

    items.sort(key=order)
    # What the modules hold lives until the end: without it, each full collection looks at all of it again.
    gc.collect()
    gc.freeze()


class ByGroup(LoadScopeScheduling):
    """Distributes tests to processes: all tests of a group run in one process, other tests by their file.

    The third process begins with the unit tests, while tests of the first two wait for a cloud.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        begins_with_unit_tests = node.gateway.id == THIRD_PROCESS
        scopes = (scope for scope in self.workqueue if scope.startswith("tests/unit/") == begins_with_unit_tests)
        if scope := next(scopes, None):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of a process with other tests than those of the shared cloud, which take longest in a row.

    Only the tests of the shared cloud see the package of steps that its project uses.
    """
    for site in SITES:
        show_site(site, visible="cloud" in getattr(item, "fixturenames", ()))
    worker, group = os.environ.get("PYTEST_XDIST_WORKER"), group_of(item.nodeid.partition("::")[0])
    if worker and group != "cloud" and os.nice(0) == 0:
        os.nice(10 if worker == THIRD_PROCESS else 5)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)
