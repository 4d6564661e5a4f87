"""AWS clients with bounded time-outs and retries of transient failures."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any
from xml.etree import ElementTree

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoRegionError
from botocore.session import Session

from slackwater.aws.failures import translated
from slackwater.errors import InputError

CONFIG = Config(
    # botocore waits 60 seconds for a connection, longer than the API's function may run.
    connect_timeout=5,
    read_timeout=60,
    # `standard` repeats throttled calls, server errors and lost connections, with exponential pauses.
    retries={"mode": "standard", "max_attempts": 5},
    # Up to 16 threads share a client; with botocore's default of 10, some of them would open a connection per call.
    max_pool_connections=32,
    # Checksums only where an operation requires them: object names and manifests hold SHA-256 digests already, and TLS
    # protects the transfer. A CRC of each body would cost time for large files.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)


# For functions that run for at most a minute. A call that AWS never answers takes at most 18 seconds and two pauses
# of 1 and 2 seconds, so it fails before the function's own timeout, and the log has its error.
SHORT_CONFIG = CONFIG.merge(
    Config(connect_timeout=1, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
)
# For calls that a later call makes up for.
SINGLE_CONFIG = SHORT_CONFIG.merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))
# For Airflow's REST API: MWAA answers within 10 seconds, or refuses.
AIRFLOW_CONFIG = SINGLE_CONFIG.merge(Config(read_timeout=11))
# For calls after which a function has to answer within a second.
BRIEF_CONFIG = SINGLE_CONFIG.merge(Config(connect_timeout=0.3, read_timeout=0.5))
# For people's programs, which wait: a large answer may take minutes to arrive. `standard` also has a budget: a client
# repeats about 100 calls, and each success allows more, so that an outage does not multiply its load.
PATIENT_CONFIG = CONFIG.merge(Config(read_timeout=300))
# A session must not create two clients at the same time.
_CREATING = threading.Lock()


@contextmanager
def _configuration_errors() -> Iterator[None]:
    """Raise boto3's errors about its configuration as `InputError`."""
    try:
        yield
    except NoRegionError as error:
        raise InputError(
            "no AWS region is set: set AWS_REGION, or start the local cloud with `slackwater local up`"
        ) from error
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is not a URL
        raise InputError(
            f"the configuration of AWS cannot be used: {error} (look at AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and "
            f"~/.aws/config)"
        ) from error


def botocore_session() -> Session:
    """Return a new session of botocore, whose clients read listings of S3 faster than botocore does by itself.

    A page of 1,000 objects takes a tenth of the processor's time. Its objects have key, time, ETag, size, and other
    members that are text.
    """
    session = Session()
    session.register("before-parse.s3.ListObjectsV2", _read_objects)
    return session


def _read_objects(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_more: object) -> None:
    """Add the objects of a page to the parsed response, and leave the rest of the page to botocore."""
    if response_dict["status_code"] != HTTPStatus.OK:
        return
    # botocore reads what has another form, and names what is wrong with it.
    with suppress(ElementTree.ParseError, KeyError, ValueError):
        root = ElementTree.fromstring(response_dict["body"])  # noqa: S314 - with this parser, botocore reads it, too
        elements = root.findall("{*}Contents")
        objects = [_read_object(each) for each in elements]
        for each in elements:
            root.remove(each)
        if objects:
            response_dict["body"] = ElementTree.tostring(root)
            customized_response_dict["Contents"] = objects


def _read_object(element: ElementTree.Element) -> dict[str, Any]:
    """Return the members of an object. Raises `KeyError` or `ValueError` if a listing of S3 does not write it so."""
    members = {each.tag.rpartition("}")[2]: each.text or "" for each in element}
    modified = datetime.fromisoformat(members["LastModified"])
    if modified.tzinfo is not UTC:
        raise ValueError(modified)
    return {**members, "Size": int(members["Size"]), "LastModified": modified}


@cache
def default_session() -> boto3.session.Session:
    """Return the session of this process, for the region, credentials and endpoint of the environment.

    Its clients share what boto3 reads from large JSON files, such as the rules of endpoints: 0.05 s for each client.
    Raises `InputError` for a profile that does not exist.
    """
    with _configuration_errors():
        # botocore itself reads only AWS_DEFAULT_REGION. Other SDKs, the AWS CLI and the CDK read AWS_REGION first.
        return boto3.session.Session(
            botocore_session=botocore_session(), region_name=os.environ.get("AWS_REGION") or None
        )


def client(service: str, *, session: boto3.session.Session | None = None, config: Config = CONFIG) -> Any:
    """Return a client of `service` of `session`, by default of `default_session()`.

    Raises `InputError` when neither names a region, and for a configuration that boto3 cannot use.
    """
    with _CREATING, _configuration_errors():
        return (session or default_session()).client(service, config=config)


class Clients:
    """One client of each service, created when it is first used. All threads share its connections."""

    def __init__(self, config: Config = PATIENT_CONFIG) -> None:
        self._config = config
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, service: str) -> Any:
        """Return the client of a service. Raises `InputError` without a region."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = client(service, config=self._config)
            return self._clients[service]

    def close(self) -> None:
        """Close the connections of all clients."""
        with self._lock:
            for opened in self._clients.values():
                opened.close()
            self._clients.clear()


def caller_arn(sts: Any) -> str:
    """Return the ARN of the user or role whose credentials the client `sts` has. Raises `CloudError`."""
    with translated("read the identity of the caller"):
        return str(sts.get_caller_identity()["Arn"])
