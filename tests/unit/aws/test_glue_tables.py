"""Finding the metadata of a table in the Glue catalog."""

from __future__ import annotations

import pytest

from slackwater.aws.glue_tables import GlueTables
from slackwater.errors import AccessDenied, InputError, Throttled
from tests.fakes_aws import FakeAws

pytestmark = pytest.mark.unit

URI = "s3://lake/rates/metadata/1.json"


def table(**parameters):
    return {"Table": {"Name": "rates", "Parameters": parameters}}


@pytest.mark.parametrize("table_type", ["ICEBERG", "iceberg"])
def test_the_metadata_of_a_table_is_found(table_type):
    requests = []

    def answer(request):
        requests.append(request)
        return table(table_type=table_type, metadata_location=URI)

    assert GlueTables(FakeAws({"glue:GetTable": answer}).client).metadata_uri("finance", "rates") == URI
    assert requests == [{"DatabaseName": "finance", "Name": "rates"}]


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ("EntityNotFoundException", InputError, "the Glue catalog of this account and region has no table finance.r"),
        ("AccessDeniedException", AccessDenied, "could not read the table finance.rates of the Glue catalog: Access"),
        ("ThrottlingException", Throttled, "could not read the table finance.rates"),
        (table(), InputError, "finance.rates is not an Iceberg table"),
        (table(table_type="ICEBERG"), InputError, "finance.rates is not an Iceberg table"),
        (table(classification="parquet"), InputError, "finance.rates is not an Iceberg table"),
        ({"Table": {"Name": "rates"}}, InputError, "finance.rates is not an Iceberg table"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(answer, error, message):
    with pytest.raises(error, match=f"^{message}"):
        GlueTables(FakeAws({"glue:GetTable": answer}).client).metadata_uri("finance", "rates")


def test_the_columns_of_a_table_are_those_of_its_present_schema():
    columns = [
        {"Name": "shop", "Type": "string", "Parameters": {"iceberg.field.current": "true"}},
        {"Name": "removed", "Type": "string", "Parameters": {"iceberg.field.current": "false"}},
        {"Name": "orders", "Type": "bigint"},
    ]
    found = {"Table": {"Name": "daily_sales", "StorageDescriptor": {"Columns": columns}}}
    assert GlueTables(FakeAws({"glue:GetTable": found}).client).columns("w", "daily_sales") == ("shop", "orders")
    missing = FakeAws({"glue:GetTable": "EntityNotFoundException"}).client
    assert GlueTables(missing).columns("w", "daily_sales") == ()
    with pytest.raises(AccessDenied, match=r"could not read the columns of the table w\.daily_sales"):
        GlueTables(FakeAws({"glue:GetTable": "AccessDeniedException"}).client).columns("w", "daily_sales")
