"""Source definitions: accepted options, and errors for all others."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from slackwater.sources.definition import GENERATED_ID, Source, source_schema
from slackwater.sources.fields import FieldType
from slackwater.sources.file_format import Csv

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
EVERY_OPTION = {
    "source": "orders",
    "description": "All of it",
    "timestamp": {"field": "at", "timezone": "Europe/Berlin", "max_age_days": 30, "max_future_hours": 1},
    "event_id": "order_id",
    "trim": True,
    "null_values": ["", "n/a"],
    "unknown_fields": "reject",
    "fields": {
        "order_id": {"type": "string", "required": True, "from": "Order No."},
        "amount": {"type": "double", "decimal": ",", "thousands": "."},
        "paid": {"type": "boolean", "true_values": ["ja"], "false_values": ["nein"]},
        "shop": "string",
        "at": {"type": "timestamp", "formats": ["iso8601", "%d.%m.%Y %H:%M"]},
        "day": {"type": "date", "formats": ["%d.%m.%Y"]},
        "seen": {"type": "timestamp", "formats": ["epoch_ms"]},
    },
    "enrich": {
        "region": {"constant": "eu"},
        "label": {"template": "{shop}-{order_id}"},
        "city": {"of": "shop", "values": {"B": "Berlin"}, "default": "elsewhere"},
        "hour_there": {"part": "hour", "of": "at", "timezone": "Europe/Berlin"},
        "day_there": {"part": "date", "of": "at"},
    },
    "push": {"max_events": 500, "buffer": "queue"},
    "pull": {
        "url": "sftp://files.partner.example/out",
        "files": "{date:%Y/%m}/orders-{date:%Y%m%d}-{hour}.csv.gz",
        "format": {"type": "csv", "delimiter": ";", "encoding": "latin-1", "skip_lines": 1, "columns": ["a", "b"]},
        "credentials": "secretsmanager:partners/orders",
        "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk2sL++5mySabi+ODUdHJUi/kpIlwq+KFPdtRylkMtc",
        "timezone": "Europe/Berlin",
        "schedule": "0 6 * * *",
    },
    "late": {"rows": 5},
    "silent_hours": 12,
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the definition with one value changed; None removes it."""
    definition: Any = copy.deepcopy(EVERY_OPTION)
    *steps, last = path.split(".")
    at = definition
    for step in steps:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return definition


def test_a_definition_with_every_option():
    source = Source.model_validate(EVERY_OPTION)
    assert source.columns == {
        "order_id": FieldType.STRING,
        "amount": FieldType.DOUBLE,
        "paid": FieldType.BOOLEAN,
        "shop": FieldType.STRING,
        "at": FieldType.TIMESTAMP,
        "day": FieldType.DATE,
        "seen": FieldType.TIMESTAMP,
        "region": FieldType.STRING,
        "label": FieldType.STRING,
        "city": FieldType.STRING,
        "hour_there": FieldType.INT64,
        "day_there": FieldType.DATE,
    }
    assert source.required_fields == {"order_id", "at"}
    assert source.id_column == "order_id"
    assert source.fields["order_id"].partner_name == "Order No."
    assert Source.model_validate_json(source.model_dump_json(by_alias=True)) == source


@pytest.mark.parametrize(("constant", "type_"), [(True, "boolean"), (3, "int64"), (0.5, "double"), ("x", "string")])
def test_a_constant_has_the_type_of_its_value(constant, type_):
    assert Source.model_validate(changed("enrich.region", {"constant": constant})).columns["region"] == type_


def test_queued_events_have_generated_ids_if_the_partner_sends_none():
    assert Source.model_validate(changed("event_id", None)).id_column == GENERATED_ID


def test_without_id_and_queue_every_stored_event_counts():
    plain = changed("event_id", None) | {"push": {}}
    assert Source.model_validate(plain).id_column is None


@pytest.mark.parametrize(
    ("written", "delimiter"), [("csv", ","), ("tsv", "\t"), ({"type": "tsv", "quote": None}, "\t")]
)
def test_short_forms_of_formats(written, delimiter):
    pull = Source.model_validate(changed("pull.format", written)).pull
    assert pull is not None
    assert isinstance(pull.format, Csv)
    assert pull.format.delimiter == delimiter


WRONG = [
    ("push.bufer", "queue", "push.bufer"),
    ("description", "x" * 2049, "2048 characters"),
    ("timestamp.timezone", "Mars/Olympus", "no such timezone"),
    ("timestamp.field", "shop", "with type timestamp"),
    ("event_id", "amount", "with type int64 or string"),
    ("event_id", "nobody", "must be listed in `fields`"),
    ("fields.amount.thousands", ",", "are both"),
    ("fields.shop", {"type": "string", "decimal": ","}, "for numbers"),
    ("fields.shop", {"type": "string", "formats": ["iso8601"]}, "for timestamps and dates"),
    ("fields.day.formats", ["epoch_s"], "epochs are for timestamps, not for dates"),
    ("fields.seen.formats", ["ISO"], "is not a format"),
    ("fields.seen.formats", ["%Y-%m-%d %Q"], "%Q is not supported"),
    ("fields.seen.formats", ["%H:%M"], "does not determine a date"),
    ("fields.seen.formats", ["%Y%m%d %I:%M"], "%I and %p need each other"),
    ("fields.paid.false_values", ["JA"], "true_values and in false_values"),
    ("fields.shop", {"type": "string", "true_values": ["ja"]}, "for booleans"),
    ("fields.paid.true_values", ["False"], "true_values and in false_values"),
    ("enrich.region", {"constant": 2**63}, "does not fit into a 64-bit integer"),
    ("enrich.region", {"constant": float("inf")}, "finite number"),
    ("fields.shop", {"type": "string", "from": "Order No."}, "order_id is read from 'Order No.' too"),
    ("fields.Shop", "string", "should match pattern"),
    ("enrich.shop", {"constant": 1}, "a field already has this name"),
    ("enrich.label", {"template": "{nobody}"}, "no field 'nobody'"),
    ("enrich.label", {"template": "{}"}, "no field ''"),
    ("enrich.label", {"template": "{shop!r}"}, "only names of fields"),
    ("enrich.label", {"template": "{shop"}, "expected '}'"),
    ("enrich.day_there.of", "shop", "is not a timestamp field"),
    ("pull.url", "ftp://files.example/x", "is not a URL such as https:"),
    ("pull.url", "https://user:secret@files.example/x", "name them in `credentials`"),
    ("pull.url", "https://files.example:99999/x", "is not a URL such as https:"),
    ("pull.url", "https://files.example/a b", "is not a URL such as https:"),
    ("pull.url", "s3://*/x", "without * and ?"),
    ("pull.url", "s3://bucket/x*", "without * and ?"),
    ("pull.role", "arn:aws:iam::123456789012:role/*", "should match pattern"),
    ("pull.credentials", "ssm:*", "must not contain credentials"),
    ("timestamp.timezone", "localtime", "no such timezone"),
    ("timestamp.max_age_days", 10**9, "less than or equal"),
    ("pull.format.encoding", "base64", "no such encoding"),
    ("fields.order_id.partner_name", "x", "Extra inputs"),
    ("pull.files", "orders.csv", "has no {date}"),
    ("pull.files", "{day}-{date}.csv", "only {date}"),
    ("pull.files", "{date:%Q}.csv", "is not a format of a date"),
    ("pull.files", "{date}/" + "*" * 630, "with a date the pattern has 641 bytes in UTF-8, and the limit is 640"),
    ("pull.credentials", "hunter2", "must not contain credentials"),
    ("pull.host_key", None, "sftp needs"),
    ("pull.host_key", "SHA256:abc", "is not a host key"),
    ("pull.listing", "html", "not for sftp"),
    ("pull.role", "arn:aws:iam::123456789012:role/x", "role is for s3"),
    ("pull.format.delimiter", "\n", "cannot separate cells"),
    ("pull.format.delimiter", ";;", "at most 1 character"),
    ("pull.format.encoding", "klingon", "no such encoding"),
    ("pull.format.columns", ["a", "a"], "duplicate names"),
    ("pull.format", "docx", "does not match any of the expected tags"),
    ("pull.schedule", "at six", "five are expected"),
    ("unknown_fields", "drop", "'keep', 'ignore' or 'reject'"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG, ids=[f"{path}={value}" for path, value, _ in WRONG])
def test_errors_name_what_is_wrong(path, value, message):
    with pytest.raises(ValidationError) as caught:
        Source.model_validate(changed(path, value))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("pull", "message"),
    [
        ({"url": "http://files.example/x", "files": "{date}", "credentials": "ssm:x"}, "unencrypted"),
        ({"url": "https://files.example/x", "files": "{date}*", "listing": "none"}, "cannot have a *"),
        ({"url": "https://files.example/x", "files": "*/{date}", "listing": "html"}, "lists one folder"),
        ({"url": "s3://bucket/x", "files": "{date}", "credentials": "ssm:x"}, "credentials are not for s3"),
        ({"url": "s3://bucket/x?y=1", "files": "{date}"}, "remove the query and the fragment"),
    ],
)
def test_errors_name_options_that_do_not_fit_together(pull, message):
    with pytest.raises(ValidationError) as caught:
        Source.model_validate(changed("pull", pull))
    assert message in str(caught.value)


def test_errors_do_not_repeat_credentials():
    with pytest.raises(ValidationError) as caught:
        Source.model_validate(changed("pull.url", "https://user:hunter2@files.example/x"))
    rejections = [problem["msg"] for problem in caught.value.errors()]
    assert "hunter2" not in " ".join(rejections)


class TestSchema:
    """The JSON Schema with which editors check definitions."""

    def test_the_schema_in_docs_is_up_to_date(self):
        path = ROOT / "docs" / "contracts" / "source.schema.json"
        documented = json.loads(path.read_text(encoding="utf-8"))
        assert documented == source_schema(), f"write it again: slackwater source schema | python -m json.tool > {path}"

    @pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/sources/*.yaml")), ids=lambda path: path.stem)
    def test_the_schema_accepts_the_examples(self, path):
        jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), source_schema())

    def test_the_schema_accepts_every_option(self):
        jsonschema.validate(EVERY_OPTION, source_schema())

    @pytest.mark.parametrize("short", ["csv", "tsv", "json", "ndjson", "parquet", "xlsx"])
    def test_the_schema_accepts_short_forms(self, short):
        jsonschema.validate(changed("pull.format", short), source_schema())

    @pytest.mark.parametrize(
        ("path", "value"),
        [("push.bufer", "queue"), ("fields.shop", "text"), ("unknown_fields", "drop"), ("silent_hours", 0)],
    )
    def test_the_schema_rejects_definitions_that_the_models_reject(self, path, value):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed(path, value), source_schema())
