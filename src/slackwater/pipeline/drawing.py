"""Draw a pipeline: its inputs, its steps by stage, and where rows are exchanged. As Mermaid text, or as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, order, stages
from slackwater.pipeline.table_inputs import IcebergInput

# Sizes of the SVG in pixels. A character of the font is about 0.6 of its size wide.
_FONT, _HEIGHT, _GAP, _MARGIN, _PADDING = 13, 44, 28, 24, 12
_CHARACTER = 0.62 * _FONT
_STYLE = (
    f"text{{font:{_FONT}px sans-serif;fill:#1f2933}} .small{{font-size:11px;fill:#52606d}}"
    " .step{fill:#fff;stroke:#486581} .input{fill:#e3f8ff;stroke:#2bb0ed}"
    " .output{fill:#e3f9e5;stroke:#3ebd93} path{fill:none;stroke:#829ab1;stroke-width:1.5}"
    " .exchange{stroke:#de911d;stroke-width:2.5;stroke-dasharray:6 3}"
)


def mermaid(pipeline: Pipeline) -> str:
    """Return the pipeline as a flowchart of Mermaid, which GitHub and many editors draw.

    A stage is a box around its steps. A thick arrow is an exchange: Arrow files that another Spark job reads. Raises
    `DefinitionError` for an unknown dependency, a cycle, and a step that nothing reads.
    """
    lines = ["flowchart LR"]
    lines += [f'  {name}[("{_label(pipeline, name)}")]' for name in pipeline.inputs]
    for stage in stages(pipeline):
        lines.append(f'  subgraph stage_{stage.name}["stage {stage.name}"]')
        lines += [f'    {name}["{name}<br/>{pipeline.steps[name].step}"]' for name in stage.steps]
        lines.append("  end")
    lines.append(f'  published[["{pipeline.pipeline}"]]')
    lines += [f'  load_{name}[/"{name}<br/>{use.step}"/]' for name, use in pipeline.load.items()]
    lines += [f"  {start} {'==>' if is_exchange else '-->'} {end}" for start, end, is_exchange in _edges(pipeline)]
    return "\n".join(lines) + "\n"


def svg(pipeline: Pipeline) -> str:
    """Return the same drawing as an SVG document that needs nothing else. Raises `DefinitionError`."""
    columns = _columns(pipeline)
    width = {
        name: _CHARACTER * max(map(len, _texts(pipeline, name))) + 2 * _PADDING for column in columns for name in column
    }
    boxes: dict[str, tuple[float, float]] = {}
    left = float(_MARGIN)
    for column in columns:
        for row, name in enumerate(column):
            boxes[name] = (left, _MARGIN + 2 * _FONT + row * (_HEIGHT + _GAP))
        left += max(width[name] for name in column) + 2 * _GAP
    height = 2 * _MARGIN + 2 * _FONT + max(map(len, columns)) * (_HEIGHT + _GAP)
    shapes = [_path(boxes, width, *edge) for edge in _edges(pipeline)]
    stage_of = {name: stage for stage in stages(pipeline) for name in stage.steps}
    for name, place in boxes.items():
        shapes += _box(pipeline, name, place, width=width[name], stage=stage_of.get(name))
    size = f'width="{left:.0f}" height="{height:.0f}" viewBox="0 0 {left:.0f} {height:.0f}"'
    title = f"<title>{escape(pipeline.pipeline)}</title><style>{_STYLE}</style>"
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{title}', *shapes, "</svg>"]) + "\n"


def _columns(pipeline: Pipeline) -> list[list[str]]:
    """Return the boxes of the SVG by column: inputs, steps after those that they read, what is written."""
    column = dict.fromkeys(pipeline.inputs, 0)
    for name in order(pipeline):
        column[name] = max((column[read] + 1 for read in pipeline.steps[name].depends_on), default=0)
    last = max(column.values()) + 1
    column |= dict.fromkeys(["published", *(f"load_{name}" for name in pipeline.load)], last)
    return [[name for name, number in column.items() if number == position] for position in range(last + 1)]


def _edges(pipeline: Pipeline) -> Iterator[tuple[str, str, bool]]:
    """Yield the two ends of each arrow, and whether it is an exchange between jobs."""
    stage_of = {name: stage.name for stage in stages(pipeline) for name in stage.steps}
    for name, use in pipeline.steps.items():
        for read in use.depends_on:
            yield read, name, read in pipeline.steps and stage_of[read] != stage_of[name]
    yield pipeline.publish.step, "published", False
    for name, use in pipeline.load.items():
        for read in use.depends_on:
            yield read, f"load_{name}", read != pipeline.publish.step


def _label(pipeline: Pipeline, name: str) -> str:
    """Return the text of an input."""
    if name not in pipeline.tables:
        return name
    item = pipeline.tables[name]
    if isinstance(item, IcebergInput):
        return f"{name}: {item.iceberg}"
    unit, (first, last) = ("hour", item.hours) if item.hours else ("day", item.days)
    periods = f"{unit} {first}" if first == last else f"{unit}s {first} to {last}"
    return f"{name}: {item.table}, {periods}"


def _texts(pipeline: Pipeline, name: str) -> tuple[str, str]:
    """Return both lines of a box."""
    if name in pipeline.inputs:
        table = "Iceberg table" if name in pipeline.foreign_tables else "table"
        return _label(pipeline, name), table if name in pipeline.tables else "source"
    if name in pipeline.steps:
        return name, pipeline.steps[name].step
    if name == "published":
        return pipeline.pipeline, "published table"
    load = name.removeprefix("load_")
    return load, pipeline.load[load].step


def _box(
    pipeline: Pipeline, name: str, place: tuple[float, float], *, width: float, stage: Stage | None
) -> Iterator[str]:
    x, y = place
    kind = "input" if name in pipeline.inputs else "step" if name in pipeline.steps else "output"
    text, small = _texts(pipeline, name)
    if stage and stage.steps[-1] == name:
        yield f'<text class="small" x="{x:.0f}" y="{y - 5:.0f}">stage {escape(stage.name)} ends</text>'
    yield f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{_HEIGHT}" rx="5"/>'
    yield f'<text x="{x + _PADDING:.0f}" y="{y + 19:.0f}">{escape(text)}</text>'
    yield f'<text class="small" x="{x + _PADDING:.0f}" y="{y + 35:.0f}">{escape(small)}</text>'


def _path(
    boxes: dict[str, tuple[float, float]], width: dict[str, float], start: str, end: str, is_exchange: bool
) -> str:
    """Return the line from the right side of one box to the left side of another."""
    (x1, y1), (x2, y2) = boxes[start], boxes[end]
    x1, y1, y2 = x1 + width[start], y1 + _HEIGHT / 2, y2 + _HEIGHT / 2
    middle = (x1 + x2) / 2
    kind = ' class="exchange"' if is_exchange else ""
    return f'<path{kind} d="M{x1:.0f},{y1:.0f} C{middle:.0f},{y1:.0f} {middle:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"/>'
