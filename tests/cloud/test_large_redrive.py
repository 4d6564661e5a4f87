"""A million rejected events are sent again while processes are killed: each is stored once, and all are counted."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.cloud.deaths import deaths
from tests.cloud.test_counts import corrected

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(3600)]

BATCHES, EVENTS = 100, 10_000
JSON = {"content-type": "application/json"}
START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
DATE = START.date().isoformat()


def body_of(batch: int) -> bytes:
    """Return the events of a batch, whose values are all rejected, of three hours."""
    lines = []
    for number in range(batch * EVENTS, (batch + 1) * EVENTS):
        at = START + timedelta(milliseconds=10 * number)
        lines.append(json.dumps({"id": f"m{number}", "value": "much", "at": at.isoformat()}))
    return "\n".join(lines).encode()


def test_a_million_events_are_stored_once_however_often_processes_are_killed(cloud, tmp_path, capsys):
    token = cloud.json("token", "create", "beacons-large", "--source", "beacons")["token"]
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/beacons/events"
    headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}
    today = datetime.now(UTC).date().isoformat()
    for batch in range(BATCHES):
        answer = httpx.post(url, content=body_of(batch), headers=headers, timeout=60)
        assert (answer.status_code, len(answer.json()["rejected"])) == (422, EVENTS)
    total, window = BATCHES * EVENTS, 30_000  # events of five minutes
    starts = {START + timedelta(minutes=5 * number): window for number in range(total // window)}
    sent = {**starts, START + timedelta(minutes=5 * len(starts)): total % window}
    report = {
        "as_of": datetime.now(UTC).isoformat(),
        "through": (START + timedelta(days=1)).isoformat(),
        "counts": {f"{start:%Y-%m-%dT%H:%MZ}": number for start, number in sent.items()},
    }
    answer = httpx.post(url.replace("/events", "/counts"), json=report, headers=headers | JSON, timeout=60)
    assert answer.status_code == 202

    def counts() -> tuple[int, int, int]:
        """Return the numbers of events that are stored, rejected and missing: they are always all that were sent."""
        document = cloud.json("counts", "beacons", "--date", DATE)["total"]
        assert (document["sent"], document["surplus"]) == (total, 0)
        assert document["stored"] + document["rejected"] + document["missing"] == total
        return document["stored"], document["rejected"], document["missing"]

    assert counts() == (0, total, 0)
    redrive = ("sideline", "redrive", "beacons", "--date", today)
    with corrected(cloud):
        with deaths(cloud, tmp_path) as died:
            for seconds in (10, 20, 30):
                with cloud.process(*redrive) as process:
                    time.sleep(seconds)
                    process.kill()
                counts()
            # A command ends with the first process of the function that has died.
            while cloud.slackwater(*redrive, code=None).code:
                pass
        by_function = died.by_function()
        assert by_function["slackwater-redrive-events"] >= 8
        again = cloud.json(*redrive)
        assert (again["accepted"], again["rejected"], again["stored_before"]) == (0, 0, total)
    assert counts() == (total, 0, 0)
    distinct = "SELECT count(*), count(DISTINCT id), count(DISTINCT _batch_id) FROM raw.beacons WHERE id LIKE 'm%'"
    assert cloud.query(distinct) == [[total, total, BATCHES]]
    with capsys.disabled():
        print(f"\n{total:,} events; processes of functions killed: {dict(by_function)}")
