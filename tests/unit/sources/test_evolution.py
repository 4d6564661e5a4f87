"""Allowed and refused changes of a source that has partitions."""

from __future__ import annotations

import pytest

from slackwater.errors import DefinitionError
from slackwater.project.history import StoredColumns, check_evolution
from slackwater.sources.fields import FieldType
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

FIELDS = {"id": "string", "count": "int64", "at": "timestamp"}


def check(before, after):
    check_evolution({"things": after}, {"things": StoredColumns(columns={}).including(before)})


def test_columns_may_be_added():
    check(
        a_source(fields=FIELDS),
        a_source(fields={**FIELDS, "size": "double"}, enrich={"region": {"constant": "eu"}}),
    )


def test_order_requirements_and_the_partner_s_names_may_change():
    after = {"at": "timestamp", "count": {"type": "int64", "from": "n"}, "id": {"type": "string", "required": True}}
    check(a_source(fields=FIELDS), a_source(fields=after))


def test_a_field_may_become_derived_and_back():
    derived = {name: type_ for name, type_ in FIELDS.items() if name != "id"}
    check(a_source(fields=FIELDS), a_source(fields=derived, enrich={"id": {"template": "{count}"}}))


def test_a_type_change_is_refused_by_name_with_the_remedy():
    with pytest.raises(DefinitionError) as caught:
        check(a_source(fields=FIELDS), a_source(fields={**FIELDS, "count": "double"}))
    assert str(caught.value) == (
        "sources/things.yaml: count: the stored partitions have it as int64, which cannot become double: "
        "keep the type, or read the field into a column with another name"
    )


def test_every_problem_is_named():
    with pytest.raises(DefinitionError) as caught:
        check(a_source(fields=FIELDS), a_source(fields={"count": "string", "at": "timestamp"}))
    gone, other = sorted(str(caught.value).splitlines(), reverse=True)
    assert gone.startswith("sources/things.yaml: id: the stored partitions have this column")
    assert "count" in other


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"event_id": "id"}, {}),
        ({"event_id": "id"}, {"event_id": "count"}),
        ({"push": {"buffer": "queue"}}, {}),
        ({"push": {"buffer": "queue"}}, {"push": {"buffer": "queue"}, "event_id": "id"}),
    ],
)
def test_the_id_of_stored_duplicates_cannot_change(before, after):
    with pytest.raises(DefinitionError, match="event_id: the stored partitions contain duplicates"):
        check(a_source(fields=FIELDS, **before), a_source(fields=FIELDS, **after))


def test_an_id_may_be_added_later():
    check(a_source(fields=FIELDS), a_source(fields=FIELDS, event_id="id"))


def test_new_and_removed_sources_are_allowed():
    check_evolution({"things": a_source()}, {})
    check_evolution({}, {"things": StoredColumns(columns={"id": FieldType.STRING})})
