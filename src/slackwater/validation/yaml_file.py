"""A YAML file of a project: its content, the line and column of every key and value, and the problems in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from slackwater.problems import Path, Problem, dotted, hint

_PLAIN_TAGS = {
    ScalarNode: "tag:yaml.org,2002:str",
    SequenceNode: "tag:yaml.org,2002:seq",
    MappingNode: "tag:yaml.org,2002:map",
}


@dataclass(frozen=True, kw_only=True, order=True)
class FileProblem:
    """One problem of a project. Problems are ordered by their position."""

    file: FilePath
    line: int
    """From 1, as editors count."""
    column: int
    """From 1, in characters."""
    place: str
    """The keys that lead to the invalid value, such as `steps.joined.depends_on`; empty for the whole file."""
    message: str
    expected: str = ""
    """What the value could be."""
    suggestion: str = ""
    """The valid name that is closest to the invalid one."""

    @property
    def description(self) -> str:
        """The problem without its position: `place: message (expected ...; did you mean ...?)`."""
        place = f"{self.place}: " if self.place else ""
        return f"{place}{self.message}{hint(self.expected, self.suggestion)}"

    @property
    def position(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        """Return `file:line:column: place: message (expected ...; did you mean ...?)`."""
        return f"{self.position}: {self.description}"


class _TimesAsText(yaml.SafeLoader):
    """Reads dates and timestamps as strings."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class YamlFile:
    """The parsed content of a file, and the problems that were found in it so far."""

    def __init__(self, path: FilePath, content: bytes, *, times_as_text: bool = False) -> None:
        """Parse the content. What cannot be read is a problem, and the value is then None.

        With `times_as_text`, dates and timestamps are strings, as they are written.
        """
        self.path = path
        self.problems: list[FileProblem] = []
        self.value: Any = None
        """The content as plain values; None if it cannot be read."""
        self._root: Node | None = None
        try:
            # What `yaml.safe_load` returns, from nodes with positions. `yaml.Loader` would create any Python object.
            self._text = content.decode("utf-8")
            self._loader = (_TimesAsText if times_as_text else yaml.SafeLoader)(self._text)
            self._root = self._loader.get_single_node()
            if self._root is not None:
                self._check(self._root, (), set())
                self._construct()
        except UnicodeDecodeError as error:
            self._unreadable(content[: error.start].decode("utf-8"), f"not UTF-8: {error.reason}")
        except yaml.reader.ReaderError as error:
            self._unreadable(self._text[: error.position], f"U+{error.character:04X} is not allowed in YAML")
        except yaml.MarkedYAMLError as error:
            self._root = self.value = None
            self._add(error.problem_mark or error.context_mark, f"not readable as YAML: {_words(error)}")
        except RecursionError:
            self._root = self.value = None
            self._unreadable("", "nested too deeply")

    def report(self, problem: Problem, *, below: Path = ()) -> None:
        """Add a problem in the value at the path `below`."""
        path = (*below, *problem.path)
        mark = self._mark(path, at_key=problem.at_key)
        line, column = (mark.line, mark.column) if mark else (0, 0)
        if problem.position:
            line, column = self._inside(path, problem.position) or (line, column)
        # The keys as the file has them: YAML reads the key `no` as false.
        keys = [key.value if key else part for (key, _), part in zip(self._find(path)[1:], path, strict=False)]
        self._add_at(line, column, replace(problem, path=(*keys, *path[len(keys) :])))

    def line(self, path: Path) -> int:
        """Return the line of a value, from 1."""
        mark = self._mark(path, at_key=False)
        return mark.line + 1 if mark else 1

    def rename(self, path: Path, key: str) -> None:
        """Rename the key at the end of a path, so that its value is checked as the one of `key`."""
        *_, (_, parent), (old, value) = self._find(path)
        new = ScalarNode(_PLAIN_TAGS[ScalarNode], key, *((old.start_mark, old.end_mark) if old else ()))
        parent.value = [(new, value) if entry[0] is old else entry for entry in parent.value]
        self._construct()

    def remove(self, path: Path) -> None:
        """Remove the key at the end of a path with its value, so that the rest is checked without it."""
        *_, (_, parent), (key, _) = self._find(path)
        parent.value = [entry for entry in parent.value if entry[0] is not key]
        self._construct()

    def _construct(self) -> None:
        self.value = self._loader.construct_document(self._root)

    def _check(self, node: Node, path: Path, checked: set[int], parents: tuple[int, ...] = ()) -> None:
        """Report duplicate keys, unknown tags and scalars that have no value, in a node and below it.

        Afterwards the tree can be constructed. Raises `MarkedYAMLError` for a node that contains itself.
        """
        if id(node) in parents:
            raise yaml.MarkedYAMLError(
                problem="an alias refers to a value that contains it", problem_mark=node.start_mark
            )
        if id(node) in checked:  # an alias
            return
        checked.add(id(node))
        if node.tag not in self._loader.yaml_constructors:
            self._add(node.start_mark, f"unknown tag {node.tag}", path)
            node.tag = _PLAIN_TAGS[type(node)]
        if isinstance(node, ScalarNode):
            self._check_scalar(node, path)
            return
        if isinstance(node, MappingNode):
            self._check_keys(node, path)
            children = [(key.value, value) for key, value in node.value]
        else:
            children = list(enumerate(node.value))
        for part, child in children:
            self._check(child, (*path, part), checked, (*parents, id(node)))

    def _check_scalar(self, node: ScalarNode, path: Path) -> None:
        try:
            self._loader.construct_object(node)
        except ValueError as error:
            message = f"{node.value} is not a value: {error}: write it in quotes if it is a string"
            self._add(node.start_mark, message, path)
            node.tag = _PLAIN_TAGS[ScalarNode]
            self._loader.recursive_objects.clear()  # which a failed construction leaves behind

    def _check_keys(self, node: MappingNode, path: Path) -> None:
        """Report keys that occur twice, and remove those that are no scalars."""
        first: dict[tuple[str, str], Node] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                self._add(key.start_mark, "a key must be a string, not a list or a mapping", path)
                continue
            known = first.setdefault((key.tag, key.value), key)
            if known is not key:
                message = f"duplicate key: the first one is in line {known.start_mark.line + 1}"
                self._add(key.start_mark, message, (*path, key.value))
        node.value = [entry for entry in node.value if isinstance(entry[0], ScalarNode)]

    def _find(self, path: Path) -> list[tuple[Node | None, Node]]:
        """Return the key and the value of the root and of each part of the path, as far as it exists."""
        found: list[tuple[Node | None, Node]] = [(None, self._root)] if self._root is not None else []
        for part in path:
            child = self._child(found[-1][1], part) if found else None
            if child is None:
                break
            found.append(child)
        return found

    def _child(self, node: Node, part: str | int) -> tuple[Node | None, Node] | None:
        if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            return None, node.value[part]
        if isinstance(node, MappingNode):
            # Of merged and repeated keys, the last one counts.
            for key, value in reversed(node.value):
                if part in (key.value, self._loader.construct_object(key)):
                    return key, value
        return None

    def _mark(self, path: Path, *, at_key: bool) -> yaml.Mark | None:
        """Return where a value begins; for a block of several lines, and for a missing value, where its key does."""
        found = self._find(path)
        if not found:
            return None
        key, node = found[-1]
        is_there = len(found) > len(path)
        is_shown = isinstance(node, ScalarNode) and node.start_mark.index < node.end_mark.index
        return node.start_mark if key is None or (is_there and is_shown and not at_key) else key.start_mark

    def _inside(self, path: Path, position: tuple[int, int]) -> tuple[int, int] | None:
        """Return line and column in the file, from 0, of a position in a string; None if they cannot be determined.

        YAML removes indentation, folds lines and resolves escapes. All characters but white space are in the file in
        the same order, unless there are escapes.
        """
        found = self._find(path)
        if len(found) <= len(path) or not isinstance(found[-1][1], ScalarNode):
            return None
        node = found[-1][1]
        lines = node.value.split("\n")[: position[0]]
        before = "".join([*lines[:-1], lines[-1][: position[1] - 1]])
        start = node.start_mark.index
        if node.style:  # the quote, or the first line of a block: `|` with its options
            start = self._text.index("\n", start) if node.style in "|>" else start + 1
        characters = [index for index in range(start, node.end_mark.index) if not self._text[index].isspace()]
        expected = "".join(node.value.split())
        if not expected or "".join(self._text[index] for index in characters)[: len(expected)] != expected:
            return None
        count = len("".join(before.split()))
        index = characters[min(count, len(expected) - 1)]
        line_start = self._text.rfind("\n", 0, index) + 1
        return self._text.count("\n", 0, index), index - line_start

    def _unreadable(self, before: str, message: str) -> None:
        """Add a problem that follows the text `before`."""
        self._add_at(before.count("\n"), len(before) - before.rfind("\n") - 1, Problem(message=message))

    def _add(self, mark: yaml.Mark | None, message: str, path: Path = ()) -> None:
        line, column = (mark.line, mark.column) if mark else (0, 0)
        self._add_at(line, column, Problem(message=message, path=path))

    def _add_at(self, line: int, column: int, problem: Problem) -> None:
        """Add a problem; line and column count from 0."""
        # The position shows which item of a list it is.
        is_item = problem.path and isinstance(problem.path[-1], int)
        self.problems.append(
            FileProblem(
                file=self.path,
                line=line + 1,
                column=column + 1,
                place=dotted(problem.path[:-1] if is_item else problem.path),
                message=problem.message,
                expected=problem.expected,
                suggestion=problem.suggestion,
            )
        )


def _words(error: yaml.MarkedYAMLError) -> str:
    """Return the parser's message in one line, with the line of its context."""
    if str(error.problem).startswith("found character '\\t'"):
        return "a tab indents this line: use spaces"
    if str(error.problem) == "expected <block end>, but found '<block mapping start>'":
        return "this line is indented otherwise than those that it belongs to"
    if not error.context or not error.context_mark:
        return str(error.problem)
    if error.context.startswith("while"):
        return f"{error.problem} ({error.context} in line {error.context_mark.line + 1})"
    return f"{error.context}, {error.problem}"
