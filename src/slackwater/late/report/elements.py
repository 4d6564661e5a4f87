"""Elements of HTML and SVG, whose text and attributes are always escaped."""

from __future__ import annotations

from html import escape


class Html(str):
    """HTML that is safe to insert as it is. Any other string is text."""

    __slots__ = ()


# Elements that have no content and no end tag.
_VOID = frozenset({"meta"})


def element(tag: str, *children: str, **attributes: str | float) -> Html:
    """Return an element. Children that are not `Html` are escaped.

    An underscore at the end of an attribute's name is left out, as in `class_`; others become hyphens.
    """
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    start = "".join([tag, *(f' {names[name]}="{escape(str(value))}"' for name, value in attributes.items())])
    if tag in _VOID:
        return Html(f"<{start}>")
    return Html(f"<{start}>{joined(*children)}</{tag}>")


def joined(*children: str) -> Html:
    """Return the children one after the other; those that are not `Html` are escaped."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Html:
    """Return a table that scrolls sideways on a narrow screen. Blanks within cells are kept: they align numbers."""
    head = element("tr", *(element("th", cell, scope="col") for cell in columns))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="scroll")
