"""The drawing of a pipeline: every input, step and arrow once, and exchanges marked."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.drawing import mermaid, svg

pytestmark = pytest.mark.unit

SVG = "{http://www.w3.org/2000/svg}"
STEPS = {
    "checked": {"step": "data_quality", "depends_on": ["flights"], "exchange": True},
    "winds": {"step": "select", "depends_on": ["weather"]},
    "joined": {"step": "join", "depends_on": ["checked", "winds", "days", "rates"]},
    "end": {"step": "sql", "depends_on": ["joined"]},
}
ARROWS = [
    ("flights", "checked"),
    ("weather", "winds"),
    ("winds", "joined"),
    ("days", "joined"),
    ("rates", "joined"),
    ("joined", "end"),
    ("end", "published"),
    ("end", "load_report"),
]


def pipeline(**changes):
    definition = {
        "pipeline": "delays",
        "sources": ["flights", "weather"],
        "tables": {
            "days": {"table": "daily", "days": [-6, 0]},
            "rates": {"iceberg": "finance.rates", "location": "s3://lake/rates"},
        },
        "steps": STEPS,
        "publish": {"step": "end", "key": ["date"]},
        "load": {"report": {"step": "write_csv", "depends_on": ["end"]}},
    }
    return Pipeline.model_validate({**definition, **changes})


def test_mermaid_has_each_box_in_its_stage_and_each_arrow():
    lines = [line.strip() for line in mermaid(pipeline()).splitlines()]
    assert lines[0] == "flowchart LR"
    assert {'flights[("flights")]', 'days[("days: daily, days -6 to 0")]', 'published[["delays"]]'} <= set(lines)
    assert 'load_report[/"report<br/>write_csv"/]' in lines
    first, second = (lines.index(f'subgraph stage_{name}["stage {name}"]') for name in ("checked", "end"))
    assert lines[first + 1 : first + 3] == ['checked["checked<br/>data_quality"]', "end"]
    assert {line.partition("[")[0] for line in lines[second + 1 : second + 4]} == {"winds", "joined", "end"}
    arrows = [re.fullmatch(r"(\w+) (-->|==>) (\w+)", line) for line in lines]
    found = [(arrow[1], arrow[3], arrow[2]) for arrow in arrows if arrow]
    assert sorted(found) == sorted([*((*arrow, "-->") for arrow in ARROWS), ("checked", "joined", "==>")])


def test_svg_is_a_document_with_boxes_that_do_not_overlap():
    root = ET.fromstring(svg(pipeline()))  # noqa: S314 - our own output
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"flights", "checked", "winds", "joined", "end", "days: daily, days -6 to 0", "delays", "report"} <= texts
    assert {"rates: finance.rates", "Iceberg table"} <= texts
    boxes = [[float(box.get(side)) for side in ("x", "y", "width", "height")] for box in root.iter(f"{SVG}rect")]
    assert len(boxes) == len(STEPS) + 6
    for (x, y, width, height), (other_x, other_y, other_width, other_height) in combinations(boxes, 2):
        apart = x + width < other_x or other_x + other_width < x or y + height < other_y or other_y + other_height < y
        assert apart
    assert all(
        x + width < float(root.get("width")) and y + height < float(root.get("height")) for x, y, width, height in boxes
    )
    assert len(list(root.iter(f"{SVG}path"))) == len(ARROWS) + 1
    assert [path.get("class") for path in root.iter(f"{SVG}path")].count("exchange") == 1


def test_the_drawing_of_the_same_pipeline_is_the_same():
    assert (svg(pipeline()), mermaid(pipeline())) == (svg(pipeline()), mermaid(pipeline()))


@pytest.mark.parametrize("draw", [mermaid, svg])
def test_a_cycle_is_an_error(draw):
    steps = {"end": {"step": "sql", "depends_on": ["other"]}, "other": {"step": "sql", "depends_on": ["end"]}}
    with pytest.raises(DefinitionError, match="cycle"):
        draw(pipeline(steps=steps, load={}))
