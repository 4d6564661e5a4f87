"""Datasets of OpenLineage: the names of what runs read and write, and the facets of each.

The names follow OpenLineage's naming of datasets, so that other producers name the same table in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from slackwater import __version__
from slackwater.arrow.reference import StepRecord
from slackwater.lineage.loads import written_by
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.period import partition_values
from slackwater.storage import split_uri

PRODUCER = f"pkg:generic/slackwater@{__version__}"
_SPEC = "https://openlineage.io/spec/facets"
_VERSIONS = {
    "BaseSubsetDatasetFacet": "1-0-0",
    "ColumnLineageDatasetFacet": "1-2-0",
    "DataQualityAssertionsDatasetFacet": "1-1-0",
    "DatasetVersionDatasetFacet": "1-0-1",
    "ErrorMessageRunFacet": "1-0-1",
    "InputStatisticsInputDatasetFacet": "1-0-0",
    "JobTypeJobFacet": "2-0-4",
    "NominalTimeRunFacet": "1-0-1",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "ParentRunFacet": "1-2-0",
    "SchemaDatasetFacet": "1-2-0",
}
"""The published version of each facet's schema that events follow."""
_SUBSETS = {"input": "InputSubsetInputDatasetFacet", "output": "OutputSubsetOutputDatasetFacet"}
_DIGEST_LENGTH = 32

Json = dict[str, Any]
Name = tuple[str, str]
"""The namespace of a dataset, and its name in it."""


def facet(schema: str, definition: str | None = None, /, **values: Any) -> Json:
    """Return a facet of a published schema; `definition` is the name within the schema, if it is another one."""
    url = f"{_SPEC}/{_VERSIONS[schema]}/{schema}.json#/$defs/{definition or schema}"
    return {"_producer": PRODUCER, "_schemaURL": url, **values}


def dataset(name: Name, *, facets: Json | None = None, **more: Json) -> Json:
    """Return a dataset; `more` are its `inputFacets` or `outputFacets`."""
    return {"namespace": name[0], "name": name[1], "facets": facets or {}, **more}


def glue_table(table: str, execution: str) -> Name:
    """Return the name of `database.table` in the Glue catalog of an execution's account, given its ARN."""
    _, partition, _, region, account, *_ = execution.split(":")
    return f"arn:{partition}:glue:{region}:{account}", f"table/{'/'.join(table.split('.')[-2:])}"


def s3_object(uri: str) -> Name:
    """Return the name of an object or a prefix in S3."""
    bucket, key = split_uri(uri)
    return f"s3://{bucket}", key.rstrip("/")


def input_name(items: tuple[InputObject, ...], execution: str) -> Name:
    """Return the name of an input of a run, given what it has read of it."""
    first = items[0]
    if first.tag is None:
        return s3_object(first.uri.partition("/date=")[0])
    return glue_table(first.uri.partition("/")[0] if first.is_published_day else first.file or "", execution)


def input_dataset(items: tuple[InputObject, ...], execution: str, schema: Mapping[str, str]) -> Json:
    """Return what a run has read of an input: version, numbers and partitions; `schema` are known types of columns."""
    facets = {"version": facet("DatasetVersionDatasetFacet", datasetVersion=_version(items))}
    if schema:
        fields = [{"name": name, "type": data_type} for name, data_type in schema.items()]
        facets["schema"] = facet("SchemaDatasetFacet", fields=fields)
    statistics = facet(
        "InputStatisticsInputDatasetFacet",
        rowCount=sum(item.rows for item in items),
        # A published day has no size of its own.
        **({"size": sum(item.bytes for item in items)} if not items[0].is_published_day else {}),
        **({"fileCount": len(items)} if items[0].tag is None else {}),
    )
    more = {"inputStatistics": statistics}
    if partitions := list(_partitions(items)):
        more["subset"] = subset("input", partitions)
    return dataset(input_name(items, execution), facets=facets, inputFacets=more)


def subset(kind: str, partitions: Iterable[Json]) -> Json:
    """Return the facet of an `input` or an `output` that says which partitions were read or written."""
    condition = {"type": "partition", "partitions": list(partitions)}
    return facet("BaseSubsetDatasetFacet", _SUBSETS[kind], **{f"{kind}Condition": condition})


def period_partition(date: str, tag: str | None) -> Json:
    """Return the partition of a published day or hour in its version."""
    dimensions = {name: str(value) for name, value in partition_values(date).items()}
    return {"dimensions": dimensions, **({"identifier": tag} if tag else {})}


def _version(items: tuple[InputObject, ...]) -> str:
    """Return what identifies what was read: the tag or the snapshot, or a digest of several ones."""
    if len(items) == 1 and items[0].tag:
        return items[0].tag
    identities = "".join(f"{item.uri}\t{item.tag or item.etag}\n" for item in items)
    return hashlib.sha256(identities.encode()).hexdigest()[:_DIGEST_LENGTH]


def _partitions(items: tuple[InputObject, ...]) -> Iterator[Json]:
    if items[0].is_published_day:
        yield from (period_partition(item.date, item.tag) for item in items)
    elif items[0].tag is None:
        hours = sorted({(item.date, item.hour) for item in items})
        yield from ({"dimensions": {"date": date, "hour": hour}} for date, hour in hours)


def assertions(step: StepRecord) -> list[Json]:
    """Return what a `data_quality` step has found, as assertions; none of another step."""
    results = step.effect.get("results", []) if step.step == "data_quality" else []
    found = []
    for result in results:
        columns = list(result.get("columns", []))
        of_column = {"column": columns[0]} if len(columns) == 1 else {}
        found.append(
            {
                "assertion": result["rule"],
                "success": result["failed"] == 0,
                **of_column,
                "severity": "error" if result["severity"] in {"fail", "invalidate"} else "warn",
                "name": " ".join((step.name, result["rule"], *columns)),
                "actual": f"{result['failed']} of {result['checked']} failed",
            }
        )
    return found


def loaded_datasets(step: StepRecord, files: str) -> Iterator[Json]:
    """Yield what a load step has written; `files` is the URI prefix of the project's files."""
    for kind, target, rows, size in written_by(step):
        if kind == "path":
            name = s3_object(f"{files}{target}")
        elif "url" in step.parameters:
            name = _database_table(str(step.parameters["url"]), target)
        else:
            continue
        numbers = {} if rows is None else {"rowCount": rows}
        numbers |= {} if size is None else {"size": size}
        statistics = facet("OutputStatisticsOutputDatasetFacet", **numbers)
        yield dataset(name, outputFacets={"outputStatistics": statistics})


def _database_table(url: str, table: str) -> Name:
    parts = urlsplit(url)
    host, database = parts.hostname or "", parts.path.strip("/")
    if parts.scheme == "snowflake":
        return f"snowflake://{host.removesuffix('.snowflakecomputing.com')}", f"{database}.{table}"
    scheme, port = ("postgres", 5432) if parts.scheme == "postgresql" else (parts.scheme, 5439)
    return f"{scheme}://{host}:{parts.port or port}", f"{database}.{table}"
