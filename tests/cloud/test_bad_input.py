"""Bad input gets a clear error, or is rejected with its reason, and no other data is lost."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest

pytestmark = pytest.mark.cloud

EVENT = {"origin": "JFK", "time_hour": "2014-06-01T10:00:00Z", "temp": 50.0}


@pytest.fixture(scope="module")
def post(cloud):
    url = cloud.outputs()["ApiUrl"].rstrip("/")

    def post(body, *, source="weather", token=cloud.environment["SLACKWATER_TOKEN"], **headers):
        sent = {"content-type": "application/x-ndjson", **headers}
        if token:
            sent["authorization"] = f"Bearer {token}"
        return httpx.post(f"{url}/v1/sources/{source}/events", content=body, headers=sent, timeout=60)

    return post


def ndjson(*events):
    return "\n".join(json.dumps(event) for event in events).encode()


@pytest.mark.parametrize(
    ("body", "options", "status"),
    [
        (b"\xff\xfe not json", {}, 400),
        (b'[{"origin": "JFK"', {"content-type": "application/json"}, 400),
        (b"", {}, 400),
        (ndjson(EVENT), {"token": None}, 401),
        (ndjson(EVENT), {"token": "wrong"}, 401),
        (ndjson(EVENT), {"token": "wrong", "source": "nowhere"}, 401),
        (ndjson(EVENT), {"source": "flights"}, 403),
        (ndjson(EVENT), {"content-type": "text/html"}, 415),
        (ndjson({"origin": "JFK"}), {}, 422),
    ],
)
def test_a_bad_request_gets_its_status_and_a_message(post, body, options, status):
    response = post(body, **options)
    assert response.status_code == status, response.text
    if status != 422:
        assert response.json()["error"]["message"]


@pytest.mark.parametrize("content_type", ["application/json", "application/x-ndjson"])
def test_a_compressed_body_arrives_as_it_was_sent_with_every_media_type(post, content_type):
    event = json.dumps(EVENT | {"origin": "JFK \u00e9", "time_hour": "2014-07-01T12:00:00Z"}, ensure_ascii=False)
    body = f"[{event}]" if content_type == "application/json" else event
    response = post(gzip.compress(body.encode()), **{"content-type": content_type, "content-encoding": "gzip"})
    assert (response.status_code, response.json().get("accepted")) == (202, 1), response.text


def test_an_unknown_source_is_named_to_a_token_for_all_sources(cloud, post):
    token = cloud.json("token", "create", "everyone", "--source", "*")["token"]
    assert post(ndjson(EVENT), source="nowhere", token=token).status_code == 404


def test_good_events_of_a_batch_are_stored_and_bad_ones_rejected_with_their_reason(cloud, post):
    bad_time, no_time, wrong_type = EVENT | {"time_hour": "noon"}, {"origin": "LGA"}, EVENT | {"temp": "warm"}
    body = ndjson(EVENT, bad_time, EVENT | {"origin": "LGA", "temp": None}, no_time, wrong_type)
    response = post(gzip.compress(body), **{"content-encoding": "gzip"})
    assert response.status_code == 202, response.text
    result = response.json()
    assert (result["accepted"], result["duplicates"]) == (2, 0)
    assert [item["index"] for item in result["rejected"]] == [1, 3, 4]
    assert all("time_hour" in item["reason"] for item in result["rejected"][:2])
    assert "temp" in result["rejected"][2]["reason"]
    stored = cloud.query("SELECT origin, temp FROM raw.weather WHERE date = '2014-06-01' ORDER BY origin")
    assert stored == [["JFK", 50.0], ["LGA", None]]
    s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket, Prefix="sideline/source=weather/")["Contents"]]
    lines = [
        json.loads(line) for key in keys for line in s3.get_object(Bucket=bucket, Key=key)["Body"].read().splitlines()
    ]
    mine = {line["index"]: line for line in lines if line["batch_id"] == result["batch_id"]}
    assert set(mine) == {1, 3, 4}
    assert json.loads(mine[1]["text"]) == bad_time
    again = post(gzip.compress(body), **{"content-encoding": "gzip"}).json()
    assert (again["accepted"], again["duplicates"], len(again["rejected"])) == (0, 2, 3)
    assert cloud.query("SELECT count(*) FROM raw.weather WHERE date = '2014-06-01'") == [[2]]
