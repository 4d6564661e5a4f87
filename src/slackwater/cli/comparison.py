"""Prints a comparison of two versions of a day."""

from __future__ import annotations

from slackwater.cli.output import print_table, print_text
from slackwater.late.comparison import Comparison
from slackwater.late.report.sections import report_sections

# Characters per line.
_WIDTH = 100
_INDENT = "  "


def show_comparison(comparison: Comparison) -> None:
    """Print the report about a comparison: the day, its metrics, the keys and rows that changed, and the inputs."""
    result_style = "yellow" if comparison.rows.differing else "green"
    for index, section in enumerate(report_sections(comparison, width=_WIDTH - len(_INDENT))):
        if index:
            print_text("")
        print_text(section.title, style="bold")
        for line in section.lines:
            print_text(f"{_INDENT}{line}", style="" if index else result_style)
        if section.table:
            print_table(section.table[0], section.table[1:])
