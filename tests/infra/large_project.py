"""A project of 100 sources and 100 pipelines with the longest names that are accepted."""

from __future__ import annotations

from pathlib import Path

COUNT = 100
# 63 characters, and for a pipeline 80 with the name of its state machine.
SOURCE, PIPELINE = "source_{:03}_" + "x" * 52, "pipeline_{:03}_" + "x" * 47
_SOURCE_FILE = """
source: {source}
timestamp: {{field: at}}
fields: {{at: timestamp, key: string, value: double}}
pull: {{url: "s3://the-bucket-of-partner-{number:03}/exports", files: "{{date}}.csv", schedule: "{schedule}"}}
"""
_PIPELINE_FILE = """
pipeline: {pipeline}
sources: [{source}]
steps:
  totals:
    step: sql
    depends_on: [{source}]
    with: {{query: "SELECT key, sum(value) AS value FROM {source} GROUP BY key"}}
    exchange: true
  largest:
    step: sql
    depends_on: [totals]
    with: {{query: "SELECT key, max(value) AS value FROM totals GROUP BY key"}}
publish: {{step: largest, key: [date, key]}}
"""


def write_project(
    folder: Path, *, source: str = SOURCE, pipeline: str = PIPELINE, count: int = COUNT, schedule: str = "15 * * * *"
) -> Path:
    """Write a project whose every source is pulled from a bucket of its own and read by a pipeline of its own."""
    for name in ("sources", "pipelines"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        names = {"source": source.format(number), "pipeline": pipeline.format(number), "number": number}
        (folder / "sources" / f"{names['source']}.yaml").write_text(_SOURCE_FILE.format(**names, schedule=schedule))
        (folder / "pipelines" / f"{names['pipeline']}.yaml").write_text(_PIPELINE_FILE.format(**names))
    return folder
