"""The documentation of a step, from its module, the model of its parameters and its inputs.

`python -m slackwater.steps.documentation docs/steps` writes a page for each step of the library, and the list of steps
in the folder's README.md.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slackwater.steps.registry import find_step, step_modules
from slackwater.steps.step import Extract, Load, Step

_WRITTEN = "<!-- Written by `python -m slackwater.steps.documentation docs/steps`: edit the step's module instead. -->"
_LIST_STARTS, _LIST_ENDS = "<!-- The list of steps is generated. -->", "<!-- End of the list. -->"
_LIBRARY = "slackwater."
_KINDS = {"extract": "Extract: read rows", "transform": "Transform: rows to rows", "load": "Load: write rows"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One parameter of a step, or one field of a parameter."""

    name: str
    type: str
    default: str
    """As JSON; `required` if there is none, and empty for null and empty collections."""
    description: str


@dataclass(frozen=True, kw_only=True)
class FieldGroup:
    """The fields of an object that a parameter contains."""

    name: str
    description: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, kw_only=True)
class StepDescription:
    """What a user has to know about a step."""

    name: str
    kind: str
    """`extract`, `transform` or `load`."""
    module: str
    summary: str
    """One sentence."""
    details: str
    """Markdown."""
    inputs: str
    parameters: tuple[Field, ...]
    groups: tuple[FieldGroup, ...]
    """The objects in the parameters, in order of their first use."""
    schema: Mapping[str, Any]
    """The JSON Schema of the parameters."""
    examples: tuple[Mapping[str, Any], ...]
    """Parameters."""


def describe(name: str) -> StepDescription:
    """Return the description of a step. Raises `UnknownName`."""
    step, module = find_step(name), dict(step_modules())[name]
    first, _, details = inspect.cleandoc(importlib.import_module(module).__doc__ or "").partition("\n\n")
    schema = step.parameters.model_json_schema()
    definitions = schema.get("$defs", {})
    extra = step.parameters.model_config.get("json_schema_extra")
    return StepDescription(
        name=name,
        kind=kind_of(step),
        module=module,
        summary=_sentence(" ".join(first.split()).removeprefix(f"`{name}`: ")),
        details=details,
        inputs=_inputs(step),
        parameters=tuple(_fields(schema, definitions)),
        groups=tuple(
            FieldGroup(name=key, description=_one_line(group), fields=tuple(_fields(group, definitions)))
            for key, group in ((key, definitions[key]) for key in _used(schema, definitions))
            if "properties" in group
        ),
        schema=schema,
        # Not those of the schema, which pydantic has sorted by key.
        examples=tuple(extra.get("examples", ())) if isinstance(extra, dict) else (),  # type: ignore[arg-type]
    )


def kind_of(step: Step) -> str:
    """Return `extract`, `transform` or `load`."""
    return "extract" if isinstance(step, Extract) else "load" if isinstance(step, Load) else "transform"


def example_use(step: Step, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a pipeline uses the step with these parameters, its inputs named by what they are."""
    depends_on = {"depends_on": list(step.inputs)} if step.inputs else {}
    return {"step": step.name, **depends_on, "with": dict(parameters)}


def page(name: str) -> str:
    """Return the Markdown page of a step."""
    description, step = describe(name), find_step(name)
    sections = [_WRITTEN, f"# {name}", description.summary]
    sections += [description.details] if description.details else []
    sections += ["## Inputs", description.inputs, "## Parameters", _table(description.parameters)]
    for group in description.groups:
        sections += [f"### {group.name}", group.description, _table(group.fields)]
    sections += ["## Examples" if len(description.examples) > 1 else "## Example"] if description.examples else []
    for example in description.examples:
        section = "load" if isinstance(step, Load) else "steps"
        used = {section: {"result": example_use(step, example)}}
        text = yaml.safe_dump(used, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)
        sections.append(f"```yaml\n{text}```")
    return "\n\n".join(section for section in sections if section) + "\n"


def step_list() -> str:
    """Return the list of the library's steps in Markdown, with links to their pages."""
    names = [name for name, module in step_modules() if module.startswith(_LIBRARY)]
    described = [describe(name) for name in sorted(names)]
    lines = []
    for kind, title in _KINDS.items():
        lines += [f"| {title} | |", "|---|---|"]
        lines += [f"| [{step.name}]({step.name}.md) | {step.summary} |" for step in described if step.kind == kind]
        lines.append("")
    return "\n".join(lines)


def pages(readme: str) -> dict[str, str]:
    """Return the content of all files of the documentation by name. `readme` is the content of README.md now."""
    before, _, rest = readme.partition(_LIST_STARTS)
    _, _, after = rest.partition(_LIST_ENDS)
    written = {f"{name}.md": page(name) for name, module in step_modules() if module.startswith(_LIBRARY)}
    return {"README.md": f"{before}{_LIST_STARTS}\n{step_list()}{_LIST_ENDS}{after}", **written}


def stored_pages(folder: Path) -> dict[str, str]:
    """Return the content of README.md and of the generated pages in a folder, by name."""
    contents = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    return {name: text for name, text in contents.items() if name == "README.md" or text.startswith(_WRITTEN)}


def main(folder: Path) -> None:
    """Write all pages, and delete those of steps that no longer exist."""
    written = pages(stored_pages(folder)["README.md"])
    for name in stored_pages(folder).keys() - written.keys():
        (folder / name).unlink()
    for name, content in written.items():
        (folder / name).write_text(content, encoding="utf-8")


def _inputs(step: Step) -> str:
    if isinstance(step, Extract):
        return "None: it reads its rows from outside of the pipeline."
    if isinstance(step, Load) and step.many_inputs:
        return "One or more. Each is written to a file or a table of its own, whose name contains `{input}`."
    if step.many_inputs:
        return "One or more, which the step reads by their names."
    names = [f"`{name}`" for name in step.inputs] + [f"`{name}` (optional)" for name in step.optional_inputs]
    return f"{', '.join(names)}{', in this order' if len(names) > 1 else ''}."


def _fields(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[Field]:
    for name, field in schema.get("properties", {}).items():
        default = field.get("default")
        if name in schema.get("required", ()):
            shown = "required"
        elif default in (None, [], {}) or isinstance(default, Mapping):
            shown = ""
        else:
            shown = json.dumps(default, ensure_ascii=False)
        yield Field(name=name, type=_type(field, definitions), default=shown, description=_one_line(field))


def _type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one for each keyword
    """Return the type of a field in words; an object has the name of its definition."""
    if "$ref" in field:
        name = str(field["$ref"]).rpartition("/")[2]
        return name if "properties" in definitions[name] else _type(definitions[name], definitions)
    if "const" in field:
        return json.dumps(field["const"])
    if "enum" in field:
        return " or ".join(map(json.dumps, field["enum"]))
    for keyword in ("anyOf", "oneOf"):
        if keyword in field:
            types = [_type(choice, definitions) for choice in field[keyword] if choice.get("type") != "null"]
            return " or ".join(dict.fromkeys(types))
    match field.get("type"):
        case "array":
            return f"list of {_type(field.get('items', {}), definitions)}"
        case "object":
            values = [field.get("additionalProperties"), *field.get("patternProperties", {}).values()]
            types = [_type(value, definitions) for value in values if isinstance(value, Mapping)]
            return f"mapping of names to {' or '.join(types) or 'values'}"
        case None:
            return "any value"
        case other:
            return str(other)


def _used(node: Any, definitions: Mapping[str, Any], seen: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the definitions that a schema refers to, directly or not, in order of first use."""
    if isinstance(node, Mapping):
        if "$ref" in node:
            name = str(node["$ref"]).rpartition("/")[2]
            return seen if name in seen else _used(definitions[name], definitions, (*seen, name))
        node = [value for key, value in node.items() if key != "$defs"]
    if isinstance(node, Sequence) and not isinstance(node, str):
        for item in node:
            seen = _used(item, definitions, seen)
    return seen


def _table(fields: Sequence[Field]) -> str:
    if not fields:
        return "None."
    rows = [(f"`{field.name}`", field.type, field.default, field.description) for field in fields]
    lines = [("Name", "Type", "Default", "Description"), ("---",) * 4, *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _one_line(schema: Mapping[str, Any]) -> str:
    return " ".join(str(schema.get("description", "")).split())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
