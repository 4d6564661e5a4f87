"""What a run costs: what AWS has billed or counted for it, and the price of that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import Field

from slackwater.costs.prices import no_prices, read_prices
from slackwater.model import UpdatedRecord

Amount = Annotated[float, Field(ge=0)]


class BilledHours(NamedTuple):
    """What EMR Serverless has billed for a job: at least a minute of each worker, without its first 20 GB of disk."""

    vcpu: float
    memory_gb: float
    storage_gb: float


class RunUsage(NamedTuple):
    """What a run has used of AWS, as far as AWS reports it now."""

    jobs: tuple[BilledHours | None, ...]
    """For each Spark job that this attempt has started; None until EMR Serverless has billed it."""
    transitions: int
    """States that were entered, and retries."""
    lambda_seconds: float
    """From the request to the response: the time that Lambda bills, and that of the invocation."""
    lambda_gb_seconds: float
    ended: bool
    """Whether no more can be added: the attempt has ended, and so has its part of the execution."""
    queued_seconds: float = 0.0
    """For how long the job that waited longest was in the queue of EMR Serverless."""


class RunCost(UpdatedRecord):
    """The cost of one attempt of a run. Values that are not known (yet) are None."""

    vcpu_hours: Amount | None = None
    memory_gb_hours: Amount | None = None
    storage_gb_hours: Amount | None = None
    """Only of the disk of a worker above 20 GB."""
    jobs: int = 0
    """Spark jobs that the attempt has started. A stage that was kept has none."""
    transitions: int | None = None
    lambda_seconds: Amount | None = None
    lambda_gb_seconds: Amount | None = None
    queued_seconds: Amount = 0
    """For how long the job that waited longest was in the queue of EMR Serverless; 0 for runs of older versions."""
    usd: Amount | None = None
    """None while hours of a job are missing, and for a region or an architecture without prices."""
    region: str = ""
    prices_as_of: str = ""
    """The ISO date of the prices; empty without prices."""
    complete: bool = False
    """Whether the cost is final. AWS reports the hours of a job some time after its end."""
    unknown: str = ""
    """Why values are missing that will not become known; empty otherwise."""


def price_run(usage: RunUsage, *, region: str, architecture: str) -> RunCost:
    """Return the cost of what a run has used, with the prices of a region such as us-east-1."""
    billed = [job for job in usage.jobs if job is not None]
    known = len(billed) == len(usage.jobs)
    vcpu, memory, storage = (_total(column) for column in zip(*billed, strict=True)) if billed else (0.0, 0.0, 0.0)
    prices = read_prices(region)
    compute = prices.architectures.get(architecture) if prices else None
    usd = None
    if prices and compute and known:
        usd = round(
            vcpu * compute.usd_per_vcpu_hour
            + memory * compute.usd_per_gb_hour
            + storage * compute.usd_per_storage_gb_hour
            + usage.lambda_gb_seconds * compute.usd_per_lambda_gb_second
            + usage.transitions * prices.usd_per_transition,
            8,
        )
    return RunCost(
        vcpu_hours=vcpu if known else None,
        memory_gb_hours=memory if known else None,
        storage_gb_hours=storage if known else None,
        jobs=len(usage.jobs),
        transitions=usage.transitions,
        lambda_seconds=round(usage.lambda_seconds, 3),
        lambda_gb_seconds=round(usage.lambda_gb_seconds, 3),
        queued_seconds=usage.queued_seconds,
        usd=usd,
        region=region,
        prices_as_of=prices.as_of if prices and compute else "",
        complete=known and usage.ended,
        unknown="" if compute else no_prices(region, architecture),
    )


def final_cost(cost: RunCost | None, reason: str) -> RunCost:
    """Return the final cost of a run that AWS reports no more about: what is known of it, and why the rest is not."""
    return (cost or RunCost()).model_copy(update={"complete": True, "unknown": reason})


def total_usd(costs: Iterable[RunCost | None]) -> float | None:
    """Return the sum in USD; None if there is none, or if the price of one is unknown."""
    prices = [cost.usd if cost else None for cost in costs]
    return _total(known) if prices and len(known := [usd for usd in prices if usd is not None]) == len(prices) else None


def _total(values: Iterable[float]) -> float:
    """Return the sum, without the digits that only come from the representation of floating-point numbers."""
    return round(math.fsum(values), 8)
