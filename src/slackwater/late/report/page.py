"""The report about a comparison as one HTML page, without scripts and without anything from elsewhere."""

from __future__ import annotations

from slackwater.late.comparison import Comparison
from slackwater.late.report.charts import metric_chart
from slackwater.late.report.elements import Html, element, table
from slackwater.late.report.headline import describe_causes, largest_effect
from slackwater.late.report.hour_charts import input_hours, metric_hours, rows_by_hour
from slackwater.late.report.message import where_to_look
from slackwater.late.report.report import causes_section, report_sections
from slackwater.late.report.section import ReportSection

# Charts of metrics, those that have changed first, and of sources with changed inputs.
_MAX_METRICS, _MAX_SOURCES = 12, 4
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --soft: #56636f; --page: #fff; --line: #d5dce2; --before: #7b8d9c;
  --after: #1769aa; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e9ee; --soft: #a3b0bb; --page: #14191e; --line: #36414b;
  --before: #7a8a97; --after: #5fb0ee; } }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: .5rem 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .15rem 0; white-space: pre-wrap; } .effect { font-size: 1.15rem; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font: .85rem/1.5 ui-monospace, monospace; margin-top: .5rem; }
th, td { padding: .25rem 1rem .25rem 0; text-align: left; white-space: pre; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 1rem 3rem; }
figure { margin: 0 0 1rem; } .charts figure { margin: 0; } figcaption { font-weight: 600; }
.bar { display: grid; grid-template-columns: 5.5rem 1fr 5.5rem; gap: .6rem; align-items: center; }
.label { color: var(--soft); } .value { font-variant-numeric: tabular-nums; }
.bar svg { width: 100%; height: .9rem; display: block; } .hours { display: block; }
text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.before { fill: var(--before); } .after { fill: var(--after); } .base { fill: var(--line); }
.same { opacity: .4; }
summary { color: var(--soft); cursor: pointer; }
.legend { color: var(--soft); border-left: .9rem solid; padding-left: .4rem; margin-right: 1.5rem; }
.legend.before { border-color: var(--before); } .legend.after { border-color: var(--after); }
"""


def report_page(comparison: Comparison) -> str:
    """Return the page: the sections of the e-mail, with charts of the metrics and of the inputs by hour."""
    verb = "have" if len(comparison.causes) > 1 else "has"
    title = f"{describe_causes(comparison)} {verb} changed {comparison.pipeline} for {comparison.date}"
    if not comparison.rows.differing:
        title = f"{comparison.pipeline} for {comparison.date}: no change"
    sections = [*report_sections(comparison, width=None), where_to_look(comparison, report="")]
    # The charts follow the summary and the causes.
    first = 1 + len(causes_section(comparison, None))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", Html(_STYLE)),
    )
    body = element(
        "body",
        element("h1", title),
        element("p", largest_effect(comparison), class_="effect"),
        *map(_section, sections[:first]),
        *_charts(comparison),
        *map(_section, sections[first:]),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _section(section: ReportSection) -> Html:
    lines = [element("p", line) for line in section.lines]
    tables = [table(*section.table)] if section.table else []
    # Browsers may break a line within an arrow.
    title = section.title.replace("->", "-\N{WORD JOINER}>")
    return element("section", element("h2", title), *lines, *tables)


def _charts(comparison: Comparison) -> list[Html]:
    """Return the charts of metrics that have a value, and of inputs that have hours."""
    metrics = [metric for metric in comparison.metrics if metric.before is not None or metric.after is not None]
    metrics.sort(key=lambda metric: not metric.moved)
    sources = list(rows_by_hour(comparison).items())[:_MAX_SOURCES]
    metric_charts = [
        metric_chart(metric, comparison, metric_hours(metric, comparison)) for metric in metrics[:_MAX_METRICS]
    ]
    hour_charts = [input_hours(source, rows, comparison) for source, rows in sources]
    sections = []
    if metric_charts:
        charts = element("div", *metric_charts, class_="charts")
        sections.append(element("section", element("h2", "Metrics before and after"), charts))
    if hour_charts:
        sections.append(element("section", element("h2", "Rows of the changed inputs by hour"), *hour_charts))
    return sections
