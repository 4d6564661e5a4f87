"""How a source may change once it has partitions."""

from __future__ import annotations

import pytest

from slackwater.errors import DefinitionError
from slackwater.sources.evolution import check_evolution
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

FIELDS = {"id": "string", "count": "int64", "at": "timestamp"}


def check(before, after):
    check_evolution({"things": after}, {"things": before})


def test_columns_may_be_added():
    check(
        a_source(fields=FIELDS),
        a_source(fields={**FIELDS, "size": "double"}, enrich={"region": {"constant": "eu"}}),
    )


def test_order_requirements_and_the_partner_s_names_may_change():
    after = {"at": "timestamp", "count": {"type": "int64", "from": "n"}, "id": {"type": "string", "required": True}}
    check(a_source(fields=FIELDS), a_source(fields=after))


def test_a_field_may_become_derived_and_back():
    derived = {name: kind for name, kind in FIELDS.items() if name != "id"}
    check(a_source(fields=FIELDS), a_source(fields=derived, enrich={"id": {"template": "{count}"}}))


def test_a_type_change_is_refused_by_name_with_the_remedy():
    with pytest.raises(DefinitionError) as caught:
        check(a_source(fields=FIELDS), a_source(fields={**FIELDS, "count": "double"}))
    assert str(caught.value) == (
        "sources/things.yaml: count: its partitions hold it as int64, which cannot become double: "
        "keep the type, or read it into a column of another name"
    )


def test_every_fault_is_named():
    with pytest.raises(DefinitionError) as caught:
        check(a_source(fields=FIELDS), a_source(fields={"count": "string", "at": "timestamp"}))
    gone, other = sorted(str(caught.value).splitlines(), reverse=True)
    assert gone.startswith("sources/things.yaml: id: its partitions hold this column")
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
def test_copies_that_an_id_tells_apart_stay_apart(before, after):
    with pytest.raises(DefinitionError, match="event_id: its partitions hold copies"):
        check(a_source(fields=FIELDS, **before), a_source(fields=FIELDS, **after))


def test_an_id_may_be_named_later():
    check(a_source(fields=FIELDS), a_source(fields=FIELDS, event_id="id"))


def test_new_sources_and_those_that_are_gone_have_nothing_to_agree_with():
    check_evolution({"things": a_source()}, {})
    check_evolution({}, {"things": a_source()})
