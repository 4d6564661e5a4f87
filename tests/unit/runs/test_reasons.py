"""Why a run starts: what has changed since the published version of its day."""

import pytest

from slackwater.runs.record import Run, RunReason, RunRecord, RunState
from slackwater.runs.run_identity import run_reasons
from tests.fakes_runs import LONGEST_RUN

pytestmark = pytest.mark.unit

FIRST, LATE, DEFINITION, CODE, MANUAL, REPAIR = (
    RunReason.FIRST,
    RunReason.LATE_DATA,
    RunReason.NEW_DEFINITION,
    RunReason.NEW_CODE,
    RunReason.MANUAL,
    RunReason.REPAIR,
)


def a_run(inputs: str, *, definition: str, code: str) -> Run:
    # As `run_identity`: equal if and only if inputs, definition and code are.
    run_id = f"{inputs}{definition}{code}".ljust(32, "0")
    return LONGEST_RUN.model_copy(update={"manifest": f"s3://exchange/manifests/{inputs}.json", "run_id": run_id})


@pytest.mark.parametrize(
    ("inputs", "definition", "code", "force", "expected"),
    [
        ("a", "b", "c", False, (REPAIR,)),
        ("a", "b", "c", True, (MANUAL,)),
        ("d", "b", "c", False, (LATE,)),
        ("d", "b", "c", True, (LATE,)),
        ("a", "e", "c", False, (DEFINITION,)),
        ("a", "b", "f", False, (CODE,)),
        ("a", "e", "f", True, (DEFINITION, CODE)),
        ("d", "e", "f", False, (LATE, DEFINITION, CODE)),
    ],
)
@pytest.mark.parametrize("digests_known", [True, False])
def test_everything_that_has_changed_is_a_reason(  # noqa: PLR0917 - a table of cases
    inputs, definition, code, force, expected, digests_known
):
    published = RunRecord(
        run=a_run("a", definition="b", code="c"),
        state=RunState.PUBLISHED,
        execution="one",
        started_at="2013-03-11T00:00:00Z",
        definition="b" if digests_known else "",
        code="c" if digests_known else "",
    )
    run = a_run(inputs, definition=definition, code=code)
    if not digests_known:
        # Records of older versions show only whether the inputs have changed.
        expected = tuple(reason for reason in expected if reason in {LATE, MANUAL, REPAIR})
    is_late = inputs != "a"
    assert run_reasons(run, published, is_late=is_late, definition=definition, code=code, force=force) == expected


@pytest.mark.parametrize("force", [True, False])
def test_the_first_run_has_no_other_reason(force):
    run = a_run("a", definition="b", code="c")
    assert run_reasons(run, None, is_late=False, definition="b", code="c", force=force) == (FIRST,)
