"""The worker sizes of a pipeline."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.sources.definition import Source

pytestmark = pytest.mark.unit


def pipeline(**spark) -> Pipeline:
    step = {"step": "sql", "depends_on": ["tides"], "with": {"query": "SELECT * FROM tides"}}
    publish = {"step": "all", "key": ["date"]}
    return Pipeline.model_validate(
        {"pipeline": "p", "sources": ["tides"], "steps": {"all": step}, "publish": publish, "spark": spark}
    )


@pytest.mark.parametrize(
    ("vcpu", "memory_gb", "message"),
    [
        (1, 1, "memory_gb: 1 vCPU have 2 to 8 GB, not 1"),
        (4, 31, "memory_gb: 4 vCPU have 8 to 30 GB, not 31"),
        (8, 18, "memory_gb: 8 vCPU have 16 to 60 GB in steps of 4, not 18"),
        (3, 8, "Input should be 1, 2, 4, 8 or 16"),
    ],
)
def test_a_size_that_emr_serverless_lacks_is_refused_with_the_sizes_that_exist(vcpu, memory_gb, message):
    with pytest.raises(ValidationError, match=message) as error:
        pipeline(executor={"vcpu": vcpu, "memory_gb": memory_gb})
    assert error.value.errors()[0]["loc"][:2] == ("spark", "executor")


def test_other_workers_run_no_day_again():
    fields = {"timestamp": {"field": "at"}, "fields": {"at": "timestamp"}, "push": {}}
    tides = Source.model_validate({"source": "tides", **fields})
    sizes = {"driver": {"vcpu": 2, "memory_gb": 8}, "max_executors": 9}
    one, other = (
        Project(sources={"tides": tides}, pipelines={"p": definition}).definition_digest("p")
        for definition in (pipeline(), pipeline(**sizes))
    )
    assert one == other
