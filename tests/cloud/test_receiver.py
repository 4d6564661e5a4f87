"""Receiving on the local cloud: push, queue, bucket, SFTP, and files by a Spark job. Results are read with SQL."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pyarrow as pa
import pytest

from benchmarks.load import count_stored, push_load, read_until_stable
from slackwater.deploy.deploy import check_definitions
from slackwater.errors import DefinitionError
from slackwater.project.project import load_project
from tests.sftp_server import PASSWORD, USER

pytestmark = pytest.mark.cloud


@pytest.fixture(scope="module")
def token(cloud) -> str:
    """A token for the sources that these tests push to."""
    options = [argument for name in ("readings", "clicks", "orders") for argument in ("--source", name)]
    return str(cloud.json("token", "create", "everything", *options)["token"])


@pytest.fixture(scope="module")
def post(cloud, token):
    url = cloud.outputs()["ApiUrl"].rstrip("/")

    def post(source: str, *events: dict[str, Any], **headers: str) -> httpx.Response:
        body = "\n".join(json.dumps(event) for event in events).encode()
        if headers.get("content-encoding") == "gzip":
            body = gzip.compress(body)
        sent = {"content-type": "application/x-ndjson", "authorization": f"Bearer {token}", **headers}
        return httpx.post(f"{url}/v1/sources/{source}/events", content=body, headers=sent, timeout=60)

    return post


def wait_for(condition: Callable[[], Any], *, seconds: float = 60) -> Any:
    """Wait until the condition is true; return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not true after {seconds} s"
        time.sleep(0.5)
    return value


ORDER = {"Order No.": "a1", "amount": "1.234,50", "paid": "JA", "shop": " B ", "at": "08.03.2013 13:30"}


class TestPush:
    def test_a_definition_with_every_setting_works(self, cloud, post):
        response = post("orders", ORDER, ORDER | {"Order No.": "a2", "colour": "red"}, **{"content-encoding": "gzip"})
        assert response.status_code == 202, response.text
        assert response.json()["accepted"] == 1
        assert [item["index"] for item in response.json()["rejected"]] == [1]
        columns = "order_id, amount, paid, shop, region, label, city, hour_there, date, hour"
        rows = cloud.query(f"SELECT {columns} FROM raw.orders WHERE order_id = 'a1'")
        assert rows == [["a1", 1234.5, True, "B", "eu", "B-a1", "Berlin", 13, "2013-03-08", "12"]]

    def test_events_sent_again_in_other_batches_count_once(self, cloud, post):
        events = [ORDER | {"Order No.": f"b{number}"} for number in range(6)]
        assert post("orders", *events[:4]).json()["accepted"] == 4
        assert post("orders", *events[2:]).status_code == 202
        assert post("orders", *events).status_code == 202
        rows = cloud.query("SELECT order_id FROM raw.orders WHERE order_id LIKE 'b%' ORDER BY 1")
        assert rows == [[f"b{number}"] for number in range(6)]

    def test_rejected_events_are_listed_and_shown(self, cloud, post):
        late = post("orders", ORDER | {"Order No.": "c1", "amount": "much"}, ORDER | {"Order No.": "c2"}).json()
        listed = cloud.json("sideline", "list", "orders")
        assert "wrong_type" in json.dumps(listed)
        shown = cloud.json("sideline", "show", "orders", "--batch", late["batch_id"])
        (record,) = shown["events"]
        assert record["index"] == 0
        assert record["rule"] == "wrong_type"
        assert json.loads(record["text"])["amount"] == "much"

    def test_a_revoked_token_is_refused(self, cloud):
        created = cloud.json("token", "create", "guest", "--source", "readings")
        assert "revoked" not in json.dumps(cloud.json("token", "list", "guest")["tokens"][0]["state"])
        cloud.json("token", "revoke", cloud.json("token", "list", "guest")["tokens"][0]["id"])
        url = cloud.outputs()["ApiUrl"].rstrip("/")
        headers = {"authorization": f"Bearer {created['token']}", "content-type": "application/x-ndjson"}
        response = httpx.post(f"{url}/v1/sources/readings/events", content=b"{}", headers=headers, timeout=60)
        assert response.status_code == 401

    def test_clients_that_lose_connections_store_each_event_once(self, cloud, token):
        load = push_load(api=cloud.outputs()["ApiUrl"], token=token, clients=4, seconds=1.5)
        s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
        stored, rejected = read_until_stable(lambda: count_stored(s3, bucket))
        assert load.valid.total() > 100
        assert load.figures()["cut"] > 0
        assert stored == load.valid
        assert rejected == load.invalid
        assert load.mismatches == []


class TestQueue:
    def test_single_events_are_stored_once_and_in_fewer_objects(self, cloud, post):
        events = [{"page": f"/{number}", "at": "2013-03-08T12:00:00Z"} for number in range(20)]
        for event in [*events, *events[:5]]:
            response = post("clicks", event)
            assert response.status_code == 202, response.text
            assert response.json()["accepted"] == 1
        expected = Counter(event["page"] for event in events)

        def pages() -> Counter[str]:
            return Counter(page for (page,) in cloud.query("SELECT page FROM raw.clicks"))

        wait_for(lambda: pages() >= expected)
        assert pages() == expected
        s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
        objects = s3.list_objects_v2(Bucket=bucket, Prefix="raw/source=clicks/")["Contents"]
        assert len(objects) < len(events)

    def test_an_invalid_event_is_rejected_immediately(self, post):
        response = post("clicks", {"at": "2013-03-08T12:00:00Z"})
        assert response.status_code == 422
        assert response.json()["rejected"][0]["reason"].startswith("page: no value")


class TestPull:
    def test_files_of_a_bucket_are_pulled(self, cloud):
        s3 = cloud.client("s3")
        s3.create_bucket(Bucket="partner-bucket")
        for day, ids in (("2013/03/08", "ab"), ("2013/03/07", "c"), ("2013/03/01", "z")):
            lines = [json.dumps({"id": name, "at": f"{day.replace('/', '-')}T10:00:00Z"}) for name in ids]
            body = gzip.compress("\n".join(lines).encode(), mtime=0)
            s3.put_object(Bucket="partner-bucket", Key=f"out/{day}/part-0.ndjson.gz", Body=body)
        totals = cloud.json("pull", "bucket", "--as-of", "2013-03-08")
        assert (totals["listed"], totals["stored"]) == (2, 2)
        assert cloud.query("SELECT id FROM raw.bucket ORDER BY 1") == [["a"], ["b"], ["c"]]
        assert cloud.json("pull", "bucket", "--as-of", "2013-03-08")["unchanged"] == 2

    def test_files_of_an_sftp_server_are_pulled_again_when_they_change(self, cloud, sftp):
        secret = json.dumps({"username": USER, "password": PASSWORD})
        cloud.client("secretsmanager").create_secret(Name="partners/ship", SecretString=secret)
        at = int(datetime(2013, 3, 8, 5, 30, tzinfo=UTC).timestamp())
        path = sftp.folder / "ship-2013-03-08-05.csv.zst"

        def write(*rows: str) -> None:
            content = "\n".join(["id;weight;at", *rows]).encode("latin-1")
            path.write_bytes(pa.compress(content, codec="zstd", asbytes=True))

        write(f"ä;1,5;{at}", f"b;2;{at}", "c;many;0")
        totals = cloud.json("pull", "ship", "--as-of", "2013-03-08")
        assert (totals["stored"], totals["rows"], totals["rejected"]) == (1, 2, 1)
        assert cloud.query("SELECT id, weight FROM raw.ship ORDER BY 2") == [["ä", 1.5], ["b", 2.0]]
        write(f"ä;1,5;{at}", f"b;22;{at}", f"d;4;{at}")
        assert cloud.json("pull", "ship", "--as-of", "2013-03-08")["stored"] == 1
        assert cloud.query("SELECT id, weight FROM raw.ship ORDER BY 2") == [["ä", 1.5], ["d", 4.0], ["b", 22.0]]

    def test_a_file_too_large_for_a_function_is_fetched_by_a_spark_job(self, cloud, partner):
        padding = "x" * 100
        rows = [f"{number},{padding},2013-03-08T{number % 24:02d}:00:00Z" for number in range(12_000)]
        partner.put("large-2013-03-08.csv", "\n".join(["id,text,at", *rows]))
        before = len(cloud.jobs())
        totals = cloud.json("pull", "large", "--as-of", "2013-03-08")
        assert (totals["stored"], totals["rows"]) == (1, 12_000)
        assert len(cloud.jobs()) == before + 1
        rows = cloud.query("SELECT count(*), sum(id), count(DISTINCT hour) FROM raw.large")
        assert rows == [[12_000, sum(range(12_000)), 24]]

    def test_a_partner_on_a_refused_address_is_not_pulled(self, cloud):
        """The functions connect to no IP address that the deployment does not allow, also after a redirect."""
        response = cloud.slackwater("pull", "metadata", code=1)
        assert "169.254.169.254" in response.err
        assert "outbound_allow" in response.err


class TestColumns:
    def test_a_type_change_is_refused(self, cloud, tmp_path, monkeypatch):
        folder = tmp_path / "project"
        (folder / "sources").mkdir(parents=True)
        clicks = (cloud.project / "sources" / "clicks.yaml").read_text()
        (folder / "sources" / "clicks.yaml").write_text(clicks.replace("{type: string", "{type: int64"))
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        # `slackwater deploy` calls it after the synthesis, before everything else: tests/infra/test_deploy.py.
        with pytest.raises(DefinitionError, match="page: the stored partitions have it as string, which cannot become"):
            check_definitions(load_project(folder), prefix="slackwater")
