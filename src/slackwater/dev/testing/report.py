"""The results of tests for people and programs: text, and JUnit XML for CI systems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from slackwater.dev.testing.differences import StepDifference
from slackwater.dev.testing.runner import PipelineTestResult
from slackwater.dev.testing.values import shown
from slackwater.formatting import counted, escape_control_characters

# Characters that neither XML nor UTF-8 has.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def summary(results: Sequence[PipelineTestResult]) -> str:
    """Return how many tests have passed and failed: `3 passed, 1 failed`."""
    passed = sum(result.passed for result in results)
    return f"{passed} passed, {len(results) - passed} failed"


def headline(difference: StepDifference) -> str:
    """Return in one line how the rows of a step differ."""
    parts = []
    if difference.missing:
        verb = "is" if difference.missing == 1 else "are"
        parts.append(f"{difference.missing:,} of {counted(difference.expected, 'expected row')} {verb} missing")
    if difference.unexpected:
        verb = "is" if difference.unexpected == 1 else "are"
        parts.append(f"{difference.unexpected:,} of {counted(difference.actual, 'actual row')} {verb} unexpected")
    return f"{difference.step}: {', '.join(parts)}"


def rows_of(difference: StepDifference) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the cells of a table with the rows that differ."""
    columns = ["", "line", *difference.columns]
    rows = [
        ["actual" if row.line is None else "expected", str(row.line or ""), *map(shown, row.values)]
        for row in difference.rows
    ]
    return columns, rows


def more_rows(difference: StepDifference) -> str:
    """Return how many rows differ that are not listed; empty if there is none."""
    left_out = difference.missing + difference.unexpected - len(difference.rows)
    return f"... and {counted(left_out, 'more row')}" if left_out else ""


def lines_of(result: PipelineTestResult) -> list[str]:
    """Return what is wrong, without the rows that differ: problems with their positions, errors, then notes."""
    problems = (f"{problem.position}  {problem.description}" for problem in result.problems)
    return [*problems, *result.errors, *result.notes]


def junit_xml(results: Sequence[PipelineTestResult], *, now: datetime) -> bytes:
    """Return the results as JUnit XML; `now` is when the tests ended."""
    suite = {
        "name": "slackwater",
        "tests": str(len(results)),
        "failures": str(sum(not result.passed for result in results)),
        "errors": "0",
        "skipped": "0",
        "time": f"{sum(result.seconds for result in results):.3f}",
        "timestamp": now.astimezone(UTC).isoformat(timespec="seconds"),
    }
    root = ET.Element("testsuites", {"name": "slackwater test"})
    parent = ET.SubElement(root, "testsuite", suite)
    for result in results:
        attributes = {"classname": "tests", "name": result.name, "file": str(result.file)}
        case = ET.SubElement(parent, "testcase", {**attributes, "time": f"{result.seconds:.3f}"})
        if not result.passed:
            lines = list(map(_for_xml, _text(result)))
            ET.SubElement(case, "failure", {"message": lines[0]}).text = "\n".join(lines)
    ET.indent(root)
    content: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _text(result: PipelineTestResult) -> list[str]:
    """Return the lines of everything that is wrong, the rows that differ first."""
    lines = []
    for difference in result.differences:
        columns, rows = rows_of(difference)
        table = [columns, *([escape_control_characters(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines.append(headline(difference))
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        lines += filter(None, [more_rows(difference)])
    return [*lines, *lines_of(result)]


def _for_xml(line: str) -> str:
    return _NO_XML.sub(lambda match: ascii(match.group())[1:-1], escape_control_characters(line))
