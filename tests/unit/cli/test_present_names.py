"""Texts of records with the present names of renamed pipelines."""

from __future__ import annotations

import pytest

from slackwater.cli.names import shown_in, use_names

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def renamed():
    use_names({"sales": "sales_by_day"})
    yield
    use_names({})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("slackwater run sales --date 2026-11-20", "slackwater run sales_by_day --date 2026-11-20"),
        ("`slackwater late release sales --date D`", "`slackwater late release sales_by_day --date D`"),
        ("sales 2026-11-20 changed: rows 1 -> 2", "sales_by_day 2026-11-20 changed: rows 1 -> 2"),
        ("pipelines/sales.yaml: its rows", "pipelines/sales_by_day.yaml: its rows"),
        ("slackwater run sales_by_day --date D", "slackwater run sales_by_day --date D"),
        ("sales: 10 rows", "sales: 10 rows"),
        ("the sum of sales", "the sum of sales"),
    ],
)
def test_a_text_has_the_present_name_where_it_names_the_pipeline(text, shown):
    assert shown_in(text) == shown
