"""The prices of AWS, as one dated file for each region (`REGION.json`)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import Field, ValidationError

from slackwater.errors import InputError
from slackwater.model import Model, first_error

Price = Annotated[float, Field(ge=0)]


class ComputePrices(Model):
    """The prices of a processor architecture, in USD."""

    usd_per_vcpu_hour: Price
    usd_per_gb_hour: Price
    """For a GB of a Spark worker's memory."""
    usd_per_storage_gb_hour: Price
    """For a GB of a Spark worker's disk. The first 20 GB of each worker are free, and not in the billed hours."""
    usd_per_lambda_gb_second: Price


class PriceSource(Model):
    """Where the prices of a service were read."""

    url: str
    as_of: str
    """The ISO date of the prices there."""


class RegionPrices(Model):
    """The public prices of one region, in USD, without free tiers, discounts and taxes."""

    region: str
    as_of: str
    """The ISO date on which the prices were last compared with their sources."""
    sources: dict[str, PriceSource]
    """By service."""
    architectures: dict[str, ComputePrices]
    """`x86_64` or `arm64`."""
    usd_per_transition: Price
    """For a state transition of a Standard workflow."""


@cache
def read_prices(region: str) -> RegionPrices | None:
    """Return the prices of a region such as us-east-1; None if this package has no file for it.

    Raises `InputError` for a file that is not valid, such as one with keys that only earlier versions have read.
    """
    file = files(__package__).joinpath(f"{region}.json")
    if not file.is_file():
        return None
    try:
        return RegionPrices.model_validate_json(file.read_bytes())
    except ValidationError as error:
        unknown = [".".join(map(str, item["loc"])) for item in error.errors() if item["type"] == "extra_forbidden"]
        wrong = f"delete the unknown keys {', '.join(unknown)}" if unknown else first_error(error)
        raise InputError(f"{_file_name(region)}: {wrong}, as docs/cost.md says, and deploy") from error


def no_prices(region: str, architecture: str) -> str:
    """Return in one line that this package has no prices of a region and an architecture, and what to do."""
    return f"no prices of {region} on {architecture}: add them to {_file_name(region)} as docs/cost.md says, and deploy"


def _file_name(region: str) -> str:
    return f"src/slackwater/costs/{region}.json"
