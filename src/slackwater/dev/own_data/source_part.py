"""What a new project has for one source: its files, the open decisions, and the commands that come next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import yaml
from pydantic import ValidationError

from slackwater.dev.editor_schemas import schema_comment
from slackwater.dev.infer import local_sample
from slackwater.dev.own_data.count_files import CountFiles, read_count_files
from slackwater.dev.own_data.definitions import Counting
from slackwater.dev.own_data.find_samples import FoundSample
from slackwater.dev.own_data.same_columns import SameColumns
from slackwater.dev.own_data.sample_rows import SampleRows, sample_rows
from slackwater.receiver.inference.definition_yaml import UNDECIDED_TIMEZONE, file_date
from slackwater.receiver.inference.infer import InferredDefinition, infer_definition
from slackwater.sources.definition import Source


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a person has to decide in a file."""

    file: str
    """Relative to the project."""
    field: str
    problem: str
    is_required: bool
    """Whether the definitions are not valid until then."""


@dataclass(frozen=True, kw_only=True)
class SourcePart:
    """The source of some files, with a pipeline that counts its rows, and a test."""

    found: FoundSample
    inferred: InferredDefinition
    rows: SampleRows | None
    """Rows of the test; None without a test."""
    same: SameColumns | None = None
    """Set if files whose names differ in more than their dates are the source."""
    counts: CountFiles | None = None
    """Files that say how many events were sent."""
    possible_counts: tuple[CountFiles, ...] = ()
    """Those that may as well belong to another source."""

    @classmethod
    def read(cls, found: FoundSample, same: SameColumns | None = None) -> SourcePart | CountFiles:
        """Read the latest of the files, of one source if they are the `same`.

        Raises as `infer_definition` and `local_sample` do.
        """
        with local_sample(found.files[-1]) as local:
            if counts := read_count_files(local, found):
                return counts
            if same:
                url = local.url and f"{local.url.rpartition('/')[0]}/{quote(same.name, safe='*')}"
                local = local._replace(name=same.name, url=url)  # noqa: PLW2901 - the same file
            inferred = infer_definition(
                local.path, name=local.name, url=local.url, listing=found.listing, is_whole=local.is_whole
            )
            source = _decided(inferred)
            rows = None
            if source and source.pull:
                rows = sample_rows(local, source, timezone=source.timestamp.timezone or "UTC")
        return cls(found=found, inferred=inferred, rows=rows, same=same)

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.inferred.source

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of its fields, and the format of its files: those of one source are equal."""
        pull = self._content.get("pull", {})
        return (*sorted(self.inferred.fields.items()), ("", str(pull.get("format"))))

    @property
    def options(self) -> int:
        """How much the fields say: more if the sample has larger numbers, or more forms of times."""
        return len(str(self._content["fields"]))

    @property
    def has_test(self) -> bool:
        """Whether the project has a test of the pipeline."""
        return self.rows is not None

    @property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = yaml.safe_load(self.inferred.definition)
        return content

    @property
    def _is_pushed(self) -> bool:
        """Whether the source gets `push`: the API takes JSON, and other files, or several ones, are pulled."""
        pull = self._content.get("pull")
        is_json = pull is None or pull["format"] in ("json", "ndjson")
        return is_json and not self.found.is_url and len(self.found.files) == 1

    @property
    def _counting(self) -> Counting | None:
        """The pipeline; None if the source has no timestamp, without which no event can be stored."""
        timestamp = self._content["timestamp"]
        if "field" not in timestamp:
            return None
        column = self.rows.column if self.rows else None
        timezone = timestamp.get("timezone", "UTC")
        return Counting(source=self.name, timestamp=timestamp["field"], column=column, timezone=timezone)

    def contents(self) -> dict[str, str]:
        """Return the files of the project, by path."""
        definition = self.inferred.definition
        if self._is_pushed:
            definition = f"{definition.partition(f'{chr(10)}pull:')[0].rstrip()}\npush: {{}}\n"
        for line in self._counts_lines():
            definition += f"{line}\n"
        files = {self._source_file: f"{schema_comment('source')}\n{definition}"}
        if counting := self._counting:
            files[f"pipelines/{counting.pipeline}.yaml"] = counting.definition()
            if rows := self.rows:
                files[f"tests/{counting.pipeline}.yaml"] = counting.test(rows.day, rows.rows, rows.counts)
        return files

    def _counts_lines(self) -> Iterator[str]:
        if self.counts:
            yield self.counts.definition(is_pulled=not self._is_pushed)
        for files in self.possible_counts:
            yield f"# {files.pattern} says how many events were sent. If they are those of this source:"
            yield f"# {files.definition(is_pulled=not self._is_pushed)}"

    @property
    def _source_file(self) -> str:
        return f"sources/{self.name}.yaml"

    def decisions(self) -> Iterator[Decision]:
        """Yield what a person has to decide: first what the definitions need."""
        for field, problem in self.inferred.undecided.items():
            yield Decision(file=self._source_file, field=field, problem=problem, is_required=True)
        content = self._content
        advice = {}
        if "event_id" not in content:
            advice["event_id"] = "none was found: name the field that identifies an event, if there is one"
        if not self._is_pushed and not self.found.is_url:
            advice["pull.url"] = "a placeholder: name the folder of the partner's files"
        if not self._is_pushed and not self.found.has_dates:
            advice["pull.files"] = "the name of the sample has no date: show where it is in names of files"
        if self.same:
            advice["pull.files"] = f"one source for {', '.join(self.same.patterns)}: their columns are equal"
        if self.counts or self.possible_counts:
            names = ", ".join(files.pattern for files in (self.counts, *self.possible_counts) if files)
            advice["counts"] = f"{names}: does it count the events of this source?"
        for field, problem in advice.items():
            yield Decision(file=self._source_file, field=field, problem=problem, is_required=False)
        if counting := self._counting:
            is_open = counting.timezone == UNDECIDED_TIMEZONE
            problem = f"the same as in {self._source_file}" if is_open else "UTC: name the one whose days you publish"
            if counting.timezone in (UNDECIDED_TIMEZONE, "UTC"):
                file = f"pipelines/{counting.pipeline}.yaml"
                yield Decision(file=file, field="timezone", problem=problem, is_required=is_open)

    def trial_commands(self, folder: Path) -> Iterator[str]:
        """Yield commands for the folder of the project that need no cloud."""
        if self.rows and self._counting and not self.found.is_url:
            file = shlex.quote(f"{self.name}={self._path(folder)}")
            yield f"slackwater dev {self._counting.pipeline} --date {self.rows.day} --input {file}"

    def run_commands(self, folder: Path) -> Iterator[str]:
        """Yield the commands that bring in the files and run the day of the test."""
        if self._is_pushed:
            yield f"slackwater push {self.name} {shlex.quote(self._path(folder))}"
        else:
            day = file_date(unquote(Path(self.found.files[-1]).name))
            as_of = f" --as-of {max(day, self.rows.day) if self.rows else day}" if day else ""
            yield f"slackwater pull {self.name}{as_of}"
        if self.rows and self._counting:
            yield f"slackwater run {self._counting.pipeline} --date {self.rows.day}"
            yield f'slackwater query "SELECT * FROM {self._counting.pipeline}"'  # noqa: S608 - shown to people

    def _path(self, folder: Path) -> str:
        """Return the path of the sample from the folder of the project."""
        return os.path.relpath(self.found.files[-1], folder)


def _decided(inferred: InferredDefinition) -> Source | None:
    """Return the definition with UTC as the timezone if that is open; None if another decision is."""
    content = yaml.safe_load(inferred.definition)
    if content["timestamp"].get("timezone") == UNDECIDED_TIMEZONE:
        content["timestamp"]["timezone"] = "UTC"
    try:
        return Source.model_validate(content)
    except ValidationError:
        return None
