"""The stacks of a deployment are deleted in order; what would be lost is found before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slackwater.errors import CloudError
from tests.fakes_stacks import BUCKET, QUEUE, ROLE, Aws

pytestmark = pytest.mark.unit

STORAGE = {"Raw": (BUCKET, "Retain"), "Scratch": (BUCKET, "Delete"), "Role": (ROLE, ""), "Queue": (QUEUE, "Delete")}


@pytest.fixture
def aws() -> Aws:
    stacks: dict[str, Any] = {"slackwater-storage": STORAGE, "slackwater-receiver": {"Arrivals": (QUEUE, "Delete")}}
    return Aws(**stacks, **{"slackwater-schedule": {}, "slackwater-dev-storage": STORAGE})


def test_existing_stacks_are_deleted_in_the_reverse_order_of_their_deployment(aws):
    deletion = aws.deletion()
    stacks = deletion.stacks("slackwater")
    assert list(deletion.problems(stacks)) == []
    for stack in stacks:
        deletion.delete(stack)
    assert aws.deleted == ["slackwater-schedule", "slackwater-receiver", "slackwater-storage"]
    assert deletion.stacks("slackwater") == []
    assert [stack.name for stack in deletion.stacks("slackwater-dev")] == ["slackwater-dev-storage"]


def test_what_is_kept_is_what_the_deployed_template_retains(aws):
    (storage,) = aws.deletion().stacks("slackwater-dev")
    assert [(resource.name, resource.kept) for resource in storage.resources] == [
        ("raw", True), ("scratch", False), ("role", False), ("queue", False),
    ]  # fmt: skip


def test_a_template_that_is_a_string_is_read(aws, monkeypatch):
    template = aws.get_template(StackName="slackwater-dev-storage")["TemplateBody"]
    monkeypatch.setattr(aws, "get_template", lambda **_: {"TemplateBody": json.dumps(template)})
    (storage,) = aws.deletion().stacks("slackwater-dev")
    assert [resource.kept for resource in storage.resources] == [True, False, False, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protected": {"slackwater-storage"}}, "stack slackwater-storage has termination protection: aws cloudform"),
        ({"objects": {"scratch": ["x"]}}, "bucket scratch is not empty, and CloudFormation deletes only an empty one"),
        (
            {"messages": {"queue": (1, 2, 4)}},
            "queue queue has 7 messages with accepted events: wait until they are stored",
        ),
        ({"objects": {"raw": ["x"]}, "messages": {"arrivals": (1, 0, 0)}}, None),
    ],
)
def test_what_prevents_a_deletion_or_would_be_lost_is_found_before(aws, change, message):
    vars(aws).update(change)
    deletion = aws.deletion()
    problems = list(deletion.problems(deletion.stacks("slackwater")))
    assert len(problems) == (message is not None)
    assert not message or problems[0].startswith(message)


def test_a_stack_that_is_being_changed_is_not_deleted(aws):
    aws.status["slackwater-storage"] = "UPDATE_IN_PROGRESS"
    deletion = aws.deletion()
    (problem,) = deletion.problems(deletion.stacks("slackwater"))
    assert problem == "stack slackwater-storage is UPDATE_IN_PROGRESS: repeat the command when that has ended"


def test_a_failed_deletion_names_the_resource_and_can_be_repeated(aws):
    aws.fails["slackwater-receiver"] = "in use"
    deletion = aws.deletion()
    receiver = deletion.stacks("slackwater")[1]
    with pytest.raises(CloudError, match=r"slackwater-receiver is not deleted: AWS::S3::Bucket Raw: in use\. Stacks"):
        deletion.delete(receiver)
    aws.fails.clear()
    assert [stack.status for stack in deletion.stacks("slackwater")][1] == "DELETE_FAILED"
    deletion.delete(receiver)
    assert aws.status["slackwater-receiver"] == "DELETE_COMPLETE"
