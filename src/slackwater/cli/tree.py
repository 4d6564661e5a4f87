"""Trees on a terminal: a line for each node, with the lines of its children below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from slackwater.cli.output import print_text


@dataclass
class Node:
    """A node of a tree."""

    text: str
    style: str = ""
    """Of rich."""
    children: list[Node] = field(default_factory=list)


def print_tree(root: Node) -> None:
    """Print a tree to standard output."""
    for prefix, node in _lines(root, "", ""):
        print_text(f"{prefix}{node.text}", style=node.style)


def _lines(node: Node, prefix: str, below: str) -> Iterator[tuple[str, Node]]:
    yield prefix, node
    for child in node.children:
        is_last = child is node.children[-1]
        yield from _lines(child, f"{below}{'└─ ' if is_last else '├─ '}", f"{below}{'   ' if is_last else '│  '}")
