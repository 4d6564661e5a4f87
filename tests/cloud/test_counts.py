"""Counts on the local cloud: pushed events, pulled files, reports of both, and DuckDB over what was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import duckdb
import httpx
import pytest

from examples.period_events.copy_period import copy_period
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.template_files import replace_file
from tests.cloud.alarms.drill import until

pytestmark = pytest.mark.cloud

START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
DATE = START.date().isoformat()


def an_event(number: int, **changes: object) -> dict[str, object]:
    """Return an event of the first three hours of the day, a few in each window."""
    at = START + timedelta(seconds=47 * number % (3 * 3600))
    return {"id": f"b{number}", "value": number, "at": at.isoformat(), **changes}


PUSHED = [an_event(number) for number in range(200)]
BAD = [an_event(number, value="much") for number in range(200, 203)]
PULLED = [an_event(number) for number in range(300, 350)]
LOST = [an_event(number) for number in range(400, 407)]


def sent_by_hour(events: list[dict[str, object]]) -> dict[str, int]:
    """Count events by hour with DuckDB; of several with one id in an hour, one counts."""
    rows = [(event["id"], str(event["at"])[:19]) for event in events]
    query = "SELECT date_trunc('hour', time::TIMESTAMP) AS hour, count(DISTINCT id) FROM rows GROUP BY hour"
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rows (id VARCHAR, time VARCHAR)")
    connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)
    return {f"{hour:%Y-%m-%dT%H:00:00Z}": count for hour, count in connection.execute(query).fetchall()}


def shown(cloud) -> dict[str, dict[str, object]]:
    """Return the first three hours of `slackwater counts`, by their start."""
    document = cloud.json("counts", "beacons", "--date", DATE)
    return {period["start"]: period for period in document["periods"][:3]}


@pytest.fixture(scope="module")
def token(cloud) -> str:
    return str(cloud.json("token", "create", "beacons", "--source", "beacons")["token"])


@pytest.fixture(scope="module")
def announced(cloud, arrivals):
    """Collect the events about the source in a queue; states are computed without waiting for more messages."""
    sqs, events, functions = cloud.client("sqs"), cloud.client("events"), cloud.client("lambda")
    url = sqs.create_queue(QueueName="period-changes")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"detail-type": ["Slackwater Period Changed"], "detail": {"source": ["beacons"]}}
    rule = events.put_rule(Name="period-changes", EventPattern=json.dumps(pattern))["RuleArn"]
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    events.put_targets(Rule="period-changes", Targets=[{"Id": "queue", "Arn": arn}])
    [mapping] = functions.list_event_source_mappings(FunctionName="slackwater-fold-state")["EventSourceMappings"]
    seconds = mapping["MaximumBatchingWindowInSeconds"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], MaximumBatchingWindowInSeconds=1)
    details: list[dict[str, object]] = []

    def collect() -> list[dict[str, object]]:
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            details.extend(json.loads(message["Body"])["detail"] for message in messages)
            for message in messages:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return details

    yield collect
    functions.update_event_source_mapping(UUID=mapping["UUID"], MaximumBatchingWindowInSeconds=seconds)
    events.remove_targets(Rule="period-changes", Ids=["queue"])
    events.delete_rule(Name="period-changes")
    sqs.delete_queue(QueueUrl=url)


@pytest.fixture(scope="module")
def counted(cloud, partner, token, announced, tmp_path_factory):
    """Events that are pushed twice with a report, and a file with its counts, of which 7 events are missing."""
    folder = tmp_path_factory.mktemp("beacons")
    first, again = folder / "first.ndjson", folder / "again.ndjson"
    first.write_text("".join(json.dumps(event) + "\n" for event in [*PUSHED, *BAD]))
    again.write_text("".join(json.dumps(event) + "\n" for event in PUSHED[50:70]))
    pushed = cloud.json("push", "beacons", str(first), "--counts", "--token", token)
    cloud.json("push", "beacons", str(again), "--token", token)
    rows = "".join(f"{event['id']},{event['value']},{event['at']}\n" for event in PULLED)
    partner.put(f"beacons-{DATE}.csv", f"id,value,at\n{rows}".encode())
    total: dict[str, int] = {}
    for event in [*PUSHED, *BAD, *PULLED, *LOST]:
        at = datetime.fromisoformat(str(event["at"]))
        start = at.replace(minute=at.minute - at.minute % 5, second=0)
        key = f"{start:%Y-%m-%dT%H:%MZ}"
        total[key] = total.get(key, 0) + 1
    now = datetime.now(UTC)
    through = START + timedelta(days=1)
    report = {"as_of": now.isoformat(), "through": through.isoformat(), "counts": total}
    partner.put(f"beacons-{DATE}-counts.json", json.dumps(report).encode())
    partner.put(f"beacons-{DATE}-counts-b.json", b"no JSON")
    pulled = cloud.json("pull", "beacons")
    yield pushed, pulled
    for name in (f"beacons-{DATE}.csv", f"beacons-{DATE}-counts.json", f"beacons-{DATE}-counts-b.json"):
        (partner.folder / name).unlink()


def test_hours_have_what_duckdb_counts(cloud, counted):
    pushed, pulled = counted
    assert (pushed["report"]["events"], len(pushed["rejected"])) == (203, 3)
    assert (pulled["stored"], pulled["rows"], pulled["reports"]) == (1, len(PULLED), 1)
    [refused] = pulled["refused_reports"]
    assert refused.startswith(f"beacons-{DATE}-counts-b.json: the report is not JSON")
    sent = sent_by_hour([*PUSHED, *BAD, *PULLED, *LOST])
    stored, rejected = sent_by_hour([*PUSHED, *PULLED]), sent_by_hour(BAD)
    hours = shown(cloud)
    assert {start: hour["sent"] for start, hour in hours.items()} == sent
    assert {start: hour["stored"] for start, hour in hours.items()} == stored
    assert {start: hour["rejected"] for start, hour in hours.items() if hour["rejected"]} == rejected
    missing = {start: sent[start] - stored[start] - rejected.get(start, 0) for start in sent}
    assert {start: hour["missing"] for start, hour in hours.items()} == missing
    assert sum(missing.values()) == len(LOST)
    document = cloud.json("counts", "beacons", "--date", DATE)
    line = f"sent {203 + 50 + 7}, stored 250, rejected 3, missing 7"
    assert (document["state"], document["line"]) == ("short", line)
    # The report covers the whole day: the other hours have no events, and nothing is missing.
    assert {period["state"] for period in document["periods"][3:]} == {"complete"}


def test_a_pull_again_reads_no_report_twice(cloud, counted):
    assert cloud.json("pull", "beacons")["reports"] == 0


def test_a_token_of_another_partner_is_refused(cloud, counted):
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/beacons/counts"
    key = f"{START:%Y-%m-%dT%H:%MZ}"
    report = {"as_of": datetime.now(UTC).isoformat(), "through": START.isoformat(), "counts": {key: 1}}
    before = shown(cloud)
    # It is for the source weather.
    headers = {"authorization": f"Bearer {cloud.environment['SLACKWATER_TOKEN']}"}
    response = httpx.post(url, json=report, headers=headers, timeout=60)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden")
    headers["authorization"] = "Bearer wrong"
    assert httpx.post(url, json=report, headers=headers, timeout=60).status_code == 401
    assert shown(cloud) == before


def test_a_corrected_report_decides_and_events_that_come_complete_the_hour(cloud, counted, token):
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/beacons/"
    headers = {"authorization": f"Bearer {token}"}
    lost, *others = LOST
    sent = httpx.post(f"{url}events", json=others, headers=headers, timeout=60)
    assert sent.json()["accepted"] == len(others)
    at = datetime.fromisoformat(str(lost["at"]))
    start = at.replace(minute=at.minute - at.minute % 5, second=0)
    hour = shown(cloud)[f"{at:%Y-%m-%dT%H}:00:00Z"]
    [window] = [item for item in hour["windows"] if item["start"] == f"{start:%Y-%m-%dT%H:%M:%SZ}"]
    report = {
        "as_of": datetime.now(UTC).isoformat(),
        "through": (START + timedelta(days=1)).isoformat(),
        "counts": {f"{start:%Y-%m-%dT%H:%MZ}": window["sent"] - 1},
    }
    for _ in range(2):
        assert httpx.post(f"{url}counts", json=report, headers=headers, timeout=60).status_code == 202
    assert {item["state"] for item in cloud.json("counts", "beacons", "--date", DATE)["periods"]} == {"complete"}


def test_states_follow_and_changes_are_announced_with_their_files(cloud, counted, announced):
    keys = ("start", "state", "sent", "stored", "rejected")

    def rows(periods) -> list[list[object]]:
        return [[period[key] for key in keys] for period in periods]

    # A run would compare the same numbers: those of the listing, without duplicates.
    expected = rows(cloud.json("counts", "beacons", "--date", DATE)["periods"])

    def states() -> list[list[object]]:
        [document] = cloud.json("state", "beacons", "--from", DATE, "--to", DATE)
        return rows(document["periods"])

    until(lambda: states() == expected)
    assert states() == expected
    query = f"SELECT sum(stored)::BIGINT FROM state WHERE source = 'beacons' AND start::DATE = '{DATE}'"
    assert cloud.json("query", query)["rows"] == [[sum(period[3] for period in expected)]]

    def newest() -> dict[object, dict[str, object]]:
        found: dict[object, dict[str, object]] = {}
        for detail in announced():
            if not str(detail["start"]).startswith(DATE):
                continue  # of another test
            before = found.get(detail["start"])
            if before is None or before["version"] <= detail["version"]:
                found[detail["start"]] = detail
        return found

    until(lambda: rows(newest().values()) and sorted(rows(newest().values())) == sorted(expected))
    assert sorted(rows(newest().values())) == sorted(expected)
    s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
    first = newest()[expected[0][0]]
    at, _, key = str(first["files"]).removeprefix("s3://").partition("/")
    listed = json.loads(s3.get_object(Bucket=at, Key=key)["Body"].read())["files"]
    stored = s3.list_objects_v2(Bucket=bucket, Prefix=f"raw/source=beacons/date={DATE}/hour=00/")["Contents"]
    assert [item["uri"] for item in listed] == [f"s3://{bucket}/{item['Key']}" for item in stored]


def test_the_example_copies_the_files_of_a_complete_hour(cloud, counted, announced, tmp_path):
    """The event of the first hour, of which nothing is missing, and DuckDB over the copy and over the originals."""

    def complete() -> list[dict[str, object]]:
        start = f"{DATE}T00:00:00Z"
        return [each for each in announced() if (each["start"], each["state"]) == (start, "complete")]

    until(lambda: complete() != [])
    newest = max(complete(), key=lambda detail: int(str(detail["version"])))
    s3, raw, copies = cloud.client("s3"), cloud.outputs()["RawBucket"], "copies-of-beacons"
    s3.create_bucket(Bucket=copies)
    for _ in range(2):
        copy_period(s3, copies, newest)

    def listed(bucket: str, prefix: str) -> list[str]:
        return [item["Key"] for item in s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]

    def fetched(bucket: str, keys: list[str]) -> list[str]:
        """Download objects, and return their paths."""
        paths = [str(tmp_path / f"{bucket}-{number}.parquet") for number, _ in enumerate(keys)]
        for key, path in zip(keys, paths, strict=True):
            s3.download_file(bucket, key, path)
        return paths

    manifest = f"beacons/hour/{DATE}T00/manifest.json"
    keys = [file["key"] for file in json.loads(s3.get_object(Bucket=copies, Key=manifest)["Body"].read())["files"]]
    assert sorted([manifest, *keys]) == listed(copies, "")
    copied, originals = fetched(copies, keys), fetched(raw, listed(raw, f"raw/source=beacons/date={DATE}/hour=00/"))
    connection = duckdb.connect()
    query = "SELECT * FROM read_parquet($left) EXCEPT ALL SELECT * FROM read_parquet($right)"
    for left, right in ((copied, originals), (originals, copied)):
        assert connection.execute(query, {"left": left, "right": right}).fetchall() == []
    ids = connection.execute("SELECT DISTINCT id FROM read_parquet($files)", {"files": copied}).fetchall()
    sent = {event["id"] for event in [*PUSHED, *PULLED] if str(event["at"]).startswith(f"{DATE}T00")}
    assert {row[0] for row in ids} == sent
    assert newest["stored"] == len(sent)


@contextmanager
def corrected(cloud) -> Iterator[None]:
    """Deploy a definition of the source that reads the word `much` as null, without the CDK."""
    store = S3ObjectStore(cloud.client("s3"))
    formation, before = cloud.client("cloudformation"), cloud.outputs()["ProjectUri"]
    project = json.loads(store.get(before))
    source = project["sources"]["beacons"]
    source["null_values"], source["fields"]["value"]["required"] = ["", "much"], False
    replace_file(formation, store, prefix="slackwater", uri=before, content=json.dumps(project).encode())
    [stack] = formation.describe_stacks(StackName="slackwater-processing")["Stacks"]
    [after] = [item["OutputValue"] for item in stack["Outputs"] if item["OutputKey"] == "ProjectUri"]
    try:
        yield
    finally:
        replace_file(formation, store, prefix="slackwater", uri=after, content=store.get(before))


def test_rejected_events_are_stored_once_after_their_definition_was_corrected(cloud, counted):
    today = datetime.now(UTC).date().isoformat()
    redrive = ("sideline", "redrive", "beacons", "--date", today)
    before = cloud.json("counts", "beacons", "--date", DATE)["total"]
    assert before["rejected"] == len(BAD)
    with corrected(cloud):
        assert cloud.json(*redrive)["accepted"] == len(BAD)
        again = cloud.json(*redrive)
    assert (again["accepted"], again["rejected"], again["stored_before"]) == (0, 0, len(BAD))
    after = cloud.json("counts", "beacons", "--date", DATE)["total"]
    assert after == {**before, "rejected": 0, "stored": before["stored"] + len(BAD)}
    ids = [[event["id"]] for event in BAD]
    assert cloud.query("SELECT id FROM raw.beacons WHERE value IS NULL ORDER BY id") == sorted(ids)
    assert cloud.json("sideline", "beacons", "--date", today) == {"days": []}
