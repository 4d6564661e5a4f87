"""Replaces a deployed file in deployed stacks, without the CDK."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from slackwater.aws.deployment import STACKS
from slackwater.aws.failures import translated
from slackwater.storage import ObjectStore

_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]


def replace_file(cloudformation: Any, store: ObjectStore, *, prefix: str, uri: str, content: bytes) -> None:
    """Store a new version of the deployed file at `uri` beside it, and update the stacks that name the file.

    The definitions of state machines, which are files too, follow. The next deployment by the CDK compares its
    templates with these. Raises `CloudError`.
    """
    old = uri.rpartition("/")[2]
    new = _stored(store, uri, content)
    updated = []
    for stack in (f"{prefix}-{name}" for name in STACKS):
        with translated(f"read the template of the stack {stack}"):
            template = cloudformation.get_template(StackName=stack)["TemplateBody"]
        before = template if isinstance(template, str) else json.dumps(template)
        after = before.replace(old, new)
        for resource in json.loads(before)["Resources"].values():
            if location := resource.get("Properties", {}).get("DefinitionS3Location"):
                machine = f"s3://{location['Bucket']}/{location['Key']}"
                definition = store.get(machine)
                if old.encode() in definition:
                    replaced = _stored(store, machine, definition.replace(old.encode(), new.encode()))
                    after = after.replace(location["Key"], replaced)
        if after != before:
            # A template in the request may only have 50 KB.
            bucket = uri.removeprefix("s3://").partition("/")[0]
            key = _stored(store, f"s3://{bucket}/{stack}.template.json", after.encode())
            url = f"https://s3.{cloudformation.meta.region_name}.amazonaws.com/{bucket}/{key}"
            with translated(f"update the stack {stack}"):
                cloudformation.update_stack(StackName=stack, TemplateURL=url, Capabilities=_CAPABILITIES)
            updated.append(stack)
    for stack in updated:
        with translated(f"update the stack {stack}"):
            cloudformation.get_waiter("stack_update_complete").wait(StackName=stack, WaiterConfig={"Delay": 0.1})


def _stored(store: ObjectStore, uri: str, content: bytes) -> str:
    """Store a new version of the file at `uri` beside it, named by its content, and return its name."""
    folder, _, old = uri.rpartition("/")
    name = f"{hashlib.sha256(content).hexdigest()}.{old.rpartition('.')[2]}"
    store.put(f"{folder}/{name}", content)
    return name
