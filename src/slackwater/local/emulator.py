"""Extends MiniStack: its configuration, services, types of resources and saved state.

MiniStack has no plug-in interface. This module, `state_machines`, `monitoring`, `queues`, `recursive_loops`, `tables`,
`rest_apis`, `web_acls` and `lambda_workers` replace entries of its internal tables and functions of its modules. The
version is pinned exactly, and `tests/unit/local/test_ministack_contract.py` checks every name and signature that they
use.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import botocore

from slackwater.local import layout

# HTTP status, headers, body.
Response = tuple[int, dict[str, str], bytes]
# The physical id, and the attributes for Fn::GetAtt.
ProvisionedResource = tuple[str, dict[str, str]]
# The large states whose functions do nothing but copy tables. A copy takes twice as long as the JSON of the table.
_COPIED_STATES = ("stepfunctions", "cloudformation", "cloudwatch", "cloudwatch_logs", "glue")


# Characters at the beginning of a model that contain its metadata.
_METADATA = 3_000


class Scope(NamedTuple):
    """The account and region of a request."""

    account: str
    region: str


def configure(*, state: Path, objects: Path, port: int) -> None:
    """Set the environment variables that the emulator reads when it is imported.

    Raises `RuntimeError` when the emulator is already imported.
    """
    if "ministack.app" in sys.modules:
        raise RuntimeError("the emulator is already imported and has read its settings")
    os.environ.update(
        GATEWAY_PORT=str(port),
        BIND_HOST=layout.HOST,
        MINISTACK_HOST="localhost",  # the host in the URLs that the emulator returns
        MINISTACK_REGION=layout.REGION,
        MINISTACK_ACCOUNT_ID=layout.ACCOUNT,
        PERSIST_STATE="1",
        STATE_DIR=str(state),
        S3_PERSIST="1",
        S3_DATA_DIR=str(objects),
        AUTH="true",  # check signatures and IAM permissions
        LAMBDA_EXECUTOR="local",  # processes of this machine, not containers
        LOG_LEVEL="WARNING",
        SFTP_ENABLED="0",  # these two would listen on ports of their own
        IOT_MTLS_ENABLED="0",
        # Lambda functions run in the emulator's own Python, and find AWS through these.
        **layout.environment(f"http://{layout.HOST}:{port}"),
    )


def module(name: str) -> Any:
    """Return a module of the emulator, imported only now: `configure` must run before the first import."""
    return importlib.import_module(f"ministack.{name}")


def application() -> Callable[..., Awaitable[None]]:
    """Return the emulator as an ASGI application."""
    app: Callable[..., Awaitable[None]] = module("app").app
    return app


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator: the function replaces `name` of `owner`, and gets what it replaces as its first argument.

    `owner` is a module or class of the emulator, or one of its tables.
    """

    def replace(function: Callable[..., Any]) -> Callable[..., Any]:
        original = owner[name] if isinstance(owner, dict) else getattr(owner, name)

        @functools.wraps(original)
        def replacement(*arguments: Any, **options: Any) -> Any:
            return function(original, *arguments, **options)

        if isinstance(owner, dict):
            owner[name] = replacement
        else:
            setattr(owner, name, replacement)
        return replacement

    return replace


def register_service(name: str, service: Any) -> None:
    """Serve requests that are signed for `name`, and save the service's state with that of the others.

    `service` has the functions of the emulator's own modules: `handle_request`, `get_state`, `load_persisted_state` and
    `reset`.
    """
    app, key = module("app"), name.replace("-", "_")
    # The first two tables route requests to the service. The other two make the emulator save and load its state: it
    # looks for a module of this name, and finds the object instead.
    app.SERVICE_REGISTRY[name] = {"module": key}
    app.SERVICE_HANDLERS[name] = service.handle_request
    app._state_map[key] = key
    app._loaded_modules[key] = service
    # The router accepts only services of this table: by the name in a request's signature, otherwise by its host.
    module("core.router").SERVICE_PATTERNS[name] = {"host_patterns": [rf"{name}\."]}


def resource_handlers(resource_type: str) -> dict[str, Callable[..., Any]]:
    """Return the functions that provision a type of resource in stacks: `create`, `update` and `delete`."""
    handlers: dict[str, Callable[..., Any]] = module("services.cloudformation.provisioners")._RESOURCE_HANDLERS[
        resource_type
    ]
    return handlers


def register_resource(
    resource_type: str,
    *,
    create: Callable[[dict[str, Any]], ProvisionedResource],
    delete: Callable[[str, dict[str, Any]], object],
    update: Callable[[str, dict[str, Any], dict[str, Any]], ProvisionedResource] | None = None,
) -> None:
    """Provision `resource_type` in stacks.

    `create` gets the properties, `delete` the physical id and the properties, `update` the physical id and the
    properties before and after the change. Without `update`, `create` gets the properties after the change. If it
    returns another physical id, CloudFormation deletes the replaced resource after the update.
    """
    module("services.cloudformation.provisioners")._RESOURCE_HANDLERS[resource_type] = {
        "create": lambda _logical_id, properties, _stack: create(properties),
        "update": lambda id_, old, new, _stack: update(id_, old, new) if update else create(new),
        "delete": delete,
    }


def service_states() -> dict[str, Callable[[], Any]]:
    """Return, for each service in use, the function that returns its state, for use until the state changes."""
    states: dict[str, Callable[[], Any]] = module("app")._build_persistence_save_dict()
    return {name: _without_copies(state) if name in _COPIED_STATES else state for name, state in states.items()}


def _without_copies(get_state: Any) -> Callable[[], Any]:
    """Return a function that returns the tables of a service themselves, where `get_state` returns copies of them."""
    names = {**get_state.__globals__, "copy": SimpleNamespace(deepcopy=lambda value: value)}
    return FunctionType(get_state.__code__, names)


def save_at_the_end(save: Callable[[], None]) -> None:
    """Let the emulator call `save` when it shuts down, instead of writing the states of all services."""
    module("app").save_all = lambda _states: save()


def keep_function_code() -> None:
    """Let the emulator keep the code of functions that it has stored, also after they have been deleted or changed.

    It would remove code before it saves the state that no longer names it: a kill in between would lose code that the
    last saved state names.
    """
    module("services.lambda_svc")._prune_orphan_code_blobs = lambda _referenced: None


def name_services() -> None:
    """Tell the emulator the names with which requests to AWS's services are signed.

    It would read 400 whole models of botocore for it, which takes seconds, when a request is for none of its services.
    """
    names = set[str]()
    for model in (Path(botocore.__file__).parent / "data").glob("*/*/service-2.json*"):
        with gzip.open(model, "rt") if model.suffix == ".gz" else model.open() as text:
            metadata = text.read(_METADATA)
        names |= {model.parts[-3], *re.findall(r'"(?:endpointPrefix|signingName)":\s*"([^"]+)"', metadata)}
    module("core.router")._KNOWN_AWS_SERVICE_NAMES = frozenset(names)


def read_objects_in_parts() -> None:
    """Let the emulator read only the requested range of an object, and keep no body of a versioned bucket in memory.

    It would read the whole file for each range: 280 GB for the columns of a Parquet file of 500 MB.
    """
    objects = module("services.s3")
    is_range: ContextVar[bool] = ContextVar("is_range", default=False)

    @replaces(objects, "_get_object")
    def get_object(get: Any, bucket: str, key: str, headers: dict[str, str], *query: Any) -> Any:
        token = is_range.set("range" in headers)
        try:
            status, fields, content = get(bucket, key, headers, *query)
            return status, fields, content[:] if isinstance(content, _FileBody) else content
        finally:
            is_range.reset(token)

    @replaces(objects, "_read_body")
    def read_body(read: Any, bucket: str, key: str, obj: dict[str, Any]) -> Any:
        if obj.get("body") is None and is_range.get():
            return _FileBody(Path(objects._object_disk_path(bucket, key)))
        return read(bucket, key, obj)

    @replaces(objects, "_version_entry_from_record")
    def entry_without_body(new_entry: Any, obj: dict[str, Any], version_id: str, _data: bytes | None) -> Any:
        return new_entry(obj, version_id, None)


@dataclass(frozen=True)
class _FileBody:
    """A body in a file, of which each slice is read alone."""

    path: Path

    def __getitem__(self, part: slice) -> bytes:
        start: int = part.start or 0
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read() if part.stop is None else file.read(part.stop - start)


def list_objects_in_pages() -> None:
    """Let the emulator sort only the keys of the requested page of a listing.

    It would sort all keys with the prefix for each page: 6 seconds for 86,400 objects.
    """
    objects = module("services.s3")

    @replaces(objects, "_collect_list_entries")
    def first_entries(collect: Any, keys: Iterable[str], prefix: str, delimiter: str, *page: Any) -> Any:
        max_keys, start_after = page
        if not delimiter:  # otherwise many keys may be one entry
            found = (key for key in keys if key > start_after and key.startswith(prefix))
            keys = nsmallest(max_keys + 1, found)
        return collect(keys, prefix, delimiter, *page)


def load_values_with(convert: Callable[[dict[str, Any]], Any]) -> None:
    """Let the emulator call `convert` with each JSON object of the states that it loads, before its own conversion."""

    @replaces(module("core.persistence"), "_json_object_hook")
    def convert_object(hook: Any, value: dict[str, Any]) -> Any:
        converted = convert(value)
        return hook(converted) if isinstance(converted, dict) else converted


def encode_state(service: str, state: Any, default: Callable[[Any], Any]) -> str | None:
    """Return a service's state as the JSON document that the emulator loads when it starts; None if it has none.

    `default` returns the JSON form of a value that JSON lacks.
    """
    if state is None:
        return None
    version = module("core.persistence")._state_format_version(service)
    return json.dumps({"__ministack_format__": version, "payload": state}, default=default)


def to_json_value(value: Any) -> Any:
    """Return the JSON form of one of the emulator's own containers, or of bytes."""
    return module("core.persistence")._json_default(value)


def request_scope() -> Scope:
    """Return the account and region of the request, or of the execution, that is being served."""
    responses = module("core.responses")
    return Scope(responses.get_account_id(), responses.get_region())
