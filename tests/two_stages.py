"""The example's project with an exchange: its pipeline then needs two Spark jobs for a day instead of one."""

from __future__ import annotations

from pathlib import Path

from slackwater.project.project import Project, load_project

PROJECT = Path(__file__).resolve().parents[1] / "examples" / "nyc_flights"


def two_stage_project() -> Project:
    """Return the example's project such that the joined flights of a day are stored as Arrow files."""
    project = load_project(PROJECT)
    pipeline = project.pipeline("daily_delays")
    joined = pipeline.steps["flights_with_weather"].model_copy(update={"exchange": True})
    steps = {**pipeline.steps, "flights_with_weather": joined}
    return project.model_copy(update={"pipelines": {"daily_delays": pipeline.model_copy(update={"steps": steps})}})
