"""The page about the deployment: the answers to the bodies of day one, and the arithmetic of its costs."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lambdas import receive_events
from slackwater.local.services.rest_apis import expand_body
from slackwater.project.project import load_project
from slackwater.receiver.push.request import EventsApi
from tests.fakes_functions import use_resources
from tests.fakes_receiver import MemoryBuffer, MemoryEventCounts, MemoryTokens
from tests.pushing import FunctionContext, Setup

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "examples" / "orders"
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
BODIES_STEP = PAGE.partition("**5. Push")[2].partition("**6. ")[0]

# Instead of curl: prints the values of the three headers and the body.
CURL = 'curl() { printf "%s|%s|%s|%s\\n" "$4" "$6" "$8" "$(base64 | tr -d "\\n")"; }\n'


def posted(headers, body):
    """Return the answer of the function to a request that API Gateway has expanded."""
    event = {
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "pathParameters": {"source": "orders"},
        "requestContext": {"requestId": "r"},
        "body": base64.b64encode(expand_body(body, headers["content-encoding"])).decode(),
        "isBase64Encoded": True,
    }
    return receive_events.handler(event, FunctionContext())


def test_the_bodies_of_day_one_have_the_answers_that_the_page_expects(monkeypatch):
    setup = Setup(load_project(TEMPLATE).source("orders"))
    setup.clock.time = datetime(2026, 11, 24, tzinfo=UTC)
    api = EventsApi(
        tokens=MemoryTokens({"good": ["orders"]}),
        source=lambda _: setup.source,
        receiver=setup.receiver,
        queue=MemoryBuffer(),
        now=setup.clock,
    )
    use_resources(monkeypatch, receive_events, events_api=api, event_counts=MemoryEventCounts())
    commands = BODIES_STEP.partition("```\n")[2].partition("```")[0]
    script = CURL + "SLACKWATER_TOKEN=good API=x\n" + commands[commands.index("push() {") :]
    ran = subprocess.run(["bash", "-euc", script], cwd=TEMPLATE, capture_output=True, text=True, check=True)
    requests = [line.split("|") for line in ran.stdout.splitlines()]
    sent = [(dict(field.split(": ") for field in fields), base64.b64decode(body)) for *fields, body in requests]
    assert [headers["content-type"] for headers, _ in sent] == ["application/json", "application/x-ndjson"]
    answers = [posted(*request) for request in sent]
    bodies = [json.loads(answer["body"]) for answer in answers]
    assert [answer["statusCode"] for answer in answers] == [202, 202]
    for body in bodies:
        assert f'`"accepted": {body["accepted"]}, "duplicates": {body["duplicates"]}`' in BODIES_STEP
        assert [f"`{item['reason']}`" in BODIES_STEP for item in body["rejected"]] == [True]
    assert (bodies[0]["accepted"], bodies[1]["accepted"]) == (8, 8)
    assert bodies[0]["batch_id"] != bodies[1]["batch_id"]
    assert len({row["order_id"] for row in setup.rows()}) == 8


NUMBER = r"([\d,]*\d(?:\.\d+)?)"


def number(text):
    return float(text.replace(",", ""))


def figures(pattern):
    """Return the numbers in the text of the page, where the pattern has a #."""
    found = re.search(re.escape(pattern).replace(r"\#", NUMBER), TEXT)
    assert found, pattern
    return [number(text) for text in found.groups()]


def cells(row, *, heading="## Cost"):
    """Return the cells of the first row of this name below a heading, as texts."""
    [*_, cells] = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", PAGE[PAGE.index(heading) :], re.MULTILINE).groups()
    return [cell.strip() for cell in cells.split("|")]


def is_shown(value, text):
    """Return whether a number of the page is this one, rounded to the digits that it shows."""
    digits = len(text.partition(".")[2])
    return abs(value - number(text)) <= 0.51 * 10**-digits


GIGABYTES = (1, 100, 10_000)
[EVENT_USD] = figures("EventBridge takes # for a million events")
[MESSAGE_USD] = figures("SQS takes # for a million messages")
[RUNS] = figures("so there are # runs")
[COMPARISON] = figures("is a job too: # USD")
[LEAST_RUN] = figures("A run costs at least #")


def test_events_polled_queues_gets_and_lists_follow_from_the_text():
    objects, *_ = figures("# objects for 1 GB of pulled files")
    polls, hours, _, seconds, a_month = figures("# x # x # / # = # a month")
    [send_usd] = figures("(# to send each")
    requests, request_usd = figures("objects a day x # x 47.8 runs x # / 1,000")
    listings, names, list_usd = 2, *figures("with # names in a request. 2 x 1,600,000 / 1,000 x # / 1,000")
    [window] = figures("over a window of # days")
    polled = 2 * a_month * send_usd / 1e6
    assert a_month == polls * hours * 3600 / seconds
    for gigabytes, shown in zip(GIGABYTES, cells("events, polled queues, GETs and LISTs"), strict=True):
        arrived = objects * gigabytes
        events = arrived * 30 / 1e6 * (EVENT_USD + MESSAGE_USD)
        gets = arrived * requests * RUNS * request_usd / 1000
        lists = 30 * listings * arrived * window / names * list_usd / 1000
        assert is_shown(events + polled + gets + lists, shown), gigabytes


def test_the_row_together_is_the_sum_of_the_rows_above():
    rows = (
        *("fixed (one pipeline, two sources)", "receiving", "Spark: runs, re-runs and comparisons"),
        *("events, polled queues, GETs and LISTs", "storage after a year"),
    )
    for *parts, together in zip(*map(cells, rows), cells("**together**"), strict=True):
        assert is_shown(sum(map(number, parts)), together)


def test_the_events_of_pushed_objects_follow_from_the_batches():
    [batches] = figures("USD: # batches of 4 MB")
    objects, millions, events = figures("JSON has # objects for 1 GB, # million a month at 10,000 GB a day: # for")
    in_partitions, _, messages = figures("# of the # are in partitions, two for each batch, and lead to a message: #")
    together, hour = figures("Together #, and # more for each further hour")
    assert (objects, in_partitions) == (3 * batches, 2 * batches)
    assert millions == objects * 10_000 * 30 / 1e6
    assert is_shown(millions * EVENT_USD, f"{events:.0f}")
    assert is_shown(in_partitions * 0.3 * MESSAGE_USD, f"{messages:.0f}")
    assert together == events + messages
    assert is_shown(batches * 0.3 * (EVENT_USD + MESSAGE_USD), f"{hour:.0f}")


def run_usd(gigabytes, cores=16):
    """Return what a run costs that computes so much."""
    million, seconds, share = figures("100 GB are # million events x # s / #")
    executor_usd, _, driver_usd = figures("executors (# USD each, with # GB of memory), and the driver (# USD an hour)")
    hours = million / 100 * gigabytes * seconds / share / 3600
    return max(LEAST_RUN, hours * (executor_usd + driver_usd / cores))


def test_runs_of_a_month_follow_from_the_text():
    for gigabytes, cores, one, month in zip(
        GIGABYTES, (4, 16, 128), cells("one run: USD"), cells("Spark: runs, re-runs and comparisons"), strict=True
    ):
        usd = run_usd(gigabytes, cores)
        assert is_shown(usd, one)
        assert is_shown(RUNS * usd + (RUNS - 30) * COMPARISON, month)


def test_the_other_pages_have_the_price_of_a_nat_gateway_with_its_address():
    usd = sum(figures("730 hours x 0.045 = #, its public address 730 x 0.005 = #"))
    for path in ("docs/airflow.md", "docs/receiver.md", "infra/settings.py"):
        assert f"{usd:.0f} USD" in (ROOT / path).read_text(encoding="utf-8"), path


GROWN = "### A day of 100 GB"


def test_a_day_that_grows_costs_what_its_parts_cost():
    *_, added, whole = cells("re-run", heading=GROWN)
    assert is_shown(run_usd(10), added)
    assert is_shown(run_usd(110), whole)
    rows = [cells(name, heading=GROWN)[1:] for name in ("pull", "check", "re-run", "comparison")]
    for *parts, together in zip(*rows, cells("**together**", heading=GROWN)[1:], strict=True):
        assert is_shown(sum(map(number, parts)), together)


@pytest.mark.parametrize(
    ("row", "percent", "at_the_end"),
    [
        ("none", 0, False),
        ("`{percent: 1}`", 1, False),
        ("`{percent: 5}`, and `late_max_age_hours: 24`", 5, True),
        ("`{percent: 10}`", 10, False),
    ],
)
def test_thresholds_cost_what_their_re_runs_cost(row, percent, at_the_end):
    published, late, sizes = 100, 0, []
    for hour in range(1, 11):
        late += 1
        if late / published * 100 >= percent or (at_the_end and hour == 10):
            published, late = published + late, 0
            sizes.append(published)
    reruns, added, whole, at_last = cells(row, heading=GROWN)
    before = [100, *sizes]
    assert len(sizes) == number(re.match(NUMBER, reruns)[1])
    usd = [run_usd(size - earlier) for earlier, size in zip(before, sizes, strict=False)]
    assert is_shown(sum(usd) + len(sizes) * COMPARISON, added)
    assert is_shown(sum(map(run_usd, sizes)) + len(sizes) * COMPARISON, whole)
    assert at_last == f"{published} GB"
