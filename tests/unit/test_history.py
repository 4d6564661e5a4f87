"""Definitions that were removed and come back are compared with the data that they have left."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.definition_history import HistoryStore
from slackwater.errors import CloudError, DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.history import DefinitionHistory
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.unit

FIELDS = {"id": "string", "at": "timestamp"}
NOTHING = Project(sources={}, pipelines={})


def project(*, key=("date", "id"), hourly=False, **sources) -> Project:
    """A project with sources and, if there are any, a pipeline of them that publishes with the key."""
    pipeline = {
        **({"period": "hour", "schedule": {"process": "10 * * * *"}} if hourly else {}),
        "pipeline": "totals",
        "sources": list(sources),
        "steps": {"sums": {"step": "sql", "depends_on": list(sources)}},
        "publish": {"step": "sums", "key": key},
    }
    return Project(sources=sources, pipelines={"totals": Pipeline.model_validate(pipeline)} if sources else {})


def things(**fields) -> Project:
    return project(things=a_source(fields={**FIELDS, **fields}))


class Glue:
    """Tables of the warehouse."""

    def __init__(self) -> None:
        self.tables: set[str] = set()

    def get_table(self, *, DatabaseName, Name):  # noqa: N803 - boto3's names
        if Name not in self.tables:
            raise ClientError({"Error": {"Code": "EntityNotFoundException", "Message": Name}}, "GetTable")
        return {}


class Account:
    """An account to which projects are deployed one after the other."""

    def __init__(self) -> None:
        self.store, self.glue = DictStore(), Glue()
        self.history = HistoryStore(
            store=self.store, glue=self.glue, raw_bucket="raw", warehouse_database="slackwater_warehouse"
        )
        self.deployed: Project | None = None

    def deploy(self, project: Project, *, fails: bool = False) -> None:
        self.history.check(project, deployed=self.deployed)
        if not fails:
            self.deployed = project

    def add_data(self) -> None:
        self.store.put("s3://raw/raw/source=things/date=2013-03-08/hour=17/a.parquet", b"x")
        self.glue.tables.add("totals")

    def remembered(self) -> DefinitionHistory:
        return DefinitionHistory.model_validate_json(self.store.get(self.history.uri))


@pytest.fixture
def account():
    account = Account()
    account.deploy(things(x="int64"))
    account.add_data()
    return account


def test_a_source_that_was_removed_may_come_back_with_the_same_columns_and_more(account):
    account.deploy(NOTHING)
    account.deploy(NOTHING)
    account.deploy(things(x="int64", y="double"))


@pytest.mark.parametrize("between", [[NOTHING], [NOTHING, NOTHING]])
def test_a_source_that_was_removed_cannot_come_back_with_another_type(account, between):
    for project in between:
        account.deploy(project)
    with pytest.raises(DefinitionError) as caught:
        account.deploy(things(x="string"))
    assert str(caught.value) == (
        "sources/things.yaml: x: the stored partitions have it as int64, which cannot become string: "
        "keep the type, or read the field into a column with another name"
    )


def test_a_source_that_was_removed_cannot_come_back_without_one_of_its_columns(account):
    account.deploy(NOTHING)
    with pytest.raises(
        DefinitionError, match=r"sources/things\.yaml: x: the stored partitions have this column: keep it"
    ):
        account.deploy(things())


def test_a_field_that_was_removed_by_another_tool_cannot_come_back_with_another_type(account):
    account.deploy(things(x="int64"))
    account.deployed = things()
    with pytest.raises(DefinitionError, match="x: the stored partitions have it as int64, which cannot become string"):
        account.deploy(things(x="string"))
    account.deploy(things(x="int64"))


def test_the_event_id_of_a_removed_source_is_kept(account):
    with_id = project(things=a_source(fields=FIELDS, event_id="id"), others=a_source(fields=FIELDS))
    account = Account()
    account.deploy(with_id)
    account.add_data()
    account.deploy(NOTHING)
    with pytest.raises(DefinitionError, match="event_id: the stored partitions contain duplicates that only id"):
        account.deploy(project(things=a_source(fields=FIELDS)))


@pytest.mark.parametrize("removed", [False, True])
def test_the_columns_of_a_published_key_are_kept_and_others_may_be_added(account, removed):
    source = a_source(fields={**FIELDS, "x": "int64"})
    if removed:
        account.deploy(NOTHING)
    with pytest.raises(DefinitionError) as caught:
        account.deploy(project(things=source, key=("date", "x")))
    assert str(caught.value) == (
        "pipelines/totals.yaml: publish.key: the rows of the published table are identified with id: keep it in the "
        "key (other columns may be added), or start a pipeline with another name"
    )
    account.deploy(project(things=source, key=("id", "date", "x")))
    with pytest.raises(DefinitionError, match="identified with x"):
        account.deploy(project(things=source, key=("date", "id")))


def test_the_key_of_a_pipeline_without_a_published_table_may_change(account):
    account.glue.tables.clear()
    account.deploy(project(things=a_source(fields={**FIELDS, "x": "int64"}), key=("date",)))


@pytest.mark.parametrize("hourly", [False, True])
@pytest.mark.parametrize("removed", [False, True])
def test_the_period_of_a_published_pipeline_is_kept(hourly, removed):
    source, key, account = a_source(fields=FIELDS), ("date", "hour", "id"), Account()
    account.deploy(project(things=source, key=key, hourly=hourly))
    account.add_data()
    before = account.remembered()
    if removed:
        account.deploy(NOTHING)
    with pytest.raises(DefinitionError) as caught:
        account.deploy(project(things=source, key=key, hourly=not hourly))
    had, gets = ("hour", "day") if hourly else ("day", "hour")
    assert str(caught.value) == (
        f"pipelines/totals.yaml: period: the published table has {had}s, and cannot get {gets}s: keep `period: {had}`, "
        "or start a pipeline with another name"
    )
    assert account.remembered() == before
    account.deploy(project(things=source, key=key, hourly=hourly))


def test_a_pipeline_of_a_history_without_periods_has_days(account):
    document = account.remembered().model_dump(exclude={"periods"})
    account.store.put(account.history.uri, DefinitionHistory(**document).model_dump_json().encode())
    account.deployed = None
    hourly = project(things=a_source(fields={**FIELDS, "x": "int64"}), key=("date", "hour", "id"), hourly=True)
    with pytest.raises(DefinitionError, match="period: the published table has days, and cannot get hours"):
        account.deploy(hourly)


def test_the_period_of_a_pipeline_without_a_published_table_may_change(account):
    account.glue.tables.clear()
    hourly = project(things=a_source(fields={**FIELDS, "x": "int64"}), key=("date", "hour", "id"), hourly=True)
    account.deploy(hourly)
    assert account.remembered().periods == {"totals": "hour"}


def test_every_problem_of_a_project_is_named(account):
    with pytest.raises(DefinitionError, match=r"(?s)things.yaml: x: .*\npipelines/totals.yaml: publish.key: "):
        account.deploy(project(things=a_source(fields={**FIELDS, "x": "string"}), key=("date",)))


def test_a_source_that_never_stored_anything_may_come_back_with_other_types(account):
    account.store.delete(["s3://raw/raw/source=things/date=2013-03-08/hour=17/a.parquet"])
    account.deploy(NOTHING)
    account.deploy(things(x="string"))


def test_a_deployed_source_keeps_its_types_even_before_its_first_event():
    account = Account()
    account.deploy(things(x="int64"))
    with pytest.raises(DefinitionError, match="x: the stored partitions have it as int64"):
        account.deploy(things(x="string"))


def test_a_deployment_that_fails_halfway_counts_because_its_functions_may_have_stored_events(account):
    account.deploy(things(x="int64", y="double"), fails=True)
    with pytest.raises(DefinitionError, match="y: the stored partitions have it as double"):
        account.deploy(things(x="int64", y="string"))


def test_the_history_holds_only_what_is_deployed_or_has_data():
    account = Account()
    for number in range(50):
        account.deploy(project(**{f"source_{number}": a_source(fields=FIELDS)}))
    account.deploy(NOTHING)
    assert set(account.remembered().sources) == {"source_49"}
    account.deploy(NOTHING)
    assert account.remembered() == DefinitionHistory()


def test_an_unchanged_project_is_not_written_again(account):
    account.deploy(things(x="int64"))
    written = account.store.objects[account.history.uri]
    account.deploy(things(x="int64"))
    assert account.store.objects[account.history.uri] is written


def test_an_unreadable_history_stops_the_deployment_with_the_remedy(account):
    account.store.put(account.history.uri, b"{")
    with pytest.raises(CloudError, match=r"s3://raw/definitions\.json is not readable .* restore its previous version"):
        account.deploy(things(x="int64"))


def test_what_a_check_would_refuse_is_found_without_writing(account):
    before = account.remembered()
    (problem,) = account.history.problems(things(x="string"), deployed=account.deployed)
    assert problem.startswith("sources/things.yaml: x: the stored partitions have it as int64")
    assert account.history.problems(things(x="int64", y="double"), deployed=account.deployed) == ()
    assert account.remembered() == before


def test_a_refusal_names_the_present_file_of_a_renamed_pipeline(account):
    renamed = things(x="int64")
    totals = renamed.pipelines["totals"]
    publish = totals.publish.model_copy(update={"key": ("other",)})
    renamed = renamed.model_copy(
        update={"pipelines": {"totals": totals.model_copy(update={"publish": publish})}, "names": {"totals": "sums"}}
    )
    (problem,) = account.history.problems(renamed, deployed=account.deployed)
    assert problem.startswith("pipelines/sums.yaml: publish.key: ")
