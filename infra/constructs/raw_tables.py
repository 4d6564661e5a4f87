"""The raw database: one external Parquet table for each source."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_glue as glue
from aws_cdk import aws_s3 as s3
from constructs import Construct

from slackwater.project.project import Project
from slackwater.sources.definition import GENERATED_ID, Source
from slackwater.sources.fields import FieldType
from slackwater.sources.partitions import source_prefix

PARTITION_KEYS = ("date", "hour")
# Hive's names of the types, which Glue and Athena use.
_TYPES = {
    FieldType.STRING: "string",
    FieldType.INT64: "bigint",
    FieldType.DOUBLE: "double",
    FieldType.BOOLEAN: "boolean",
    FieldType.TIMESTAMP: "timestamp",
    FieldType.DATE: "date",
}
_METADATA_COLUMNS = {"_event_time": "timestamp", "_received_at": "timestamp", "_batch_id": "string", "_extra": "string"}
_HIVE = "org.apache.hadoop.hive.ql.io.parquet"


class RawTables(Construct):
    """A Glue database of raw partitions. The receiver registers each partition when it writes it."""

    def __init__(self, scope: Construct, id_: str, *, name: str, project: Project, bucket: s3.IBucket) -> None:
        super().__init__(scope, id_)
        self.database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=Stack.of(self).account,
            database_input=glue.CfnDatabase.DatabaseInputProperty(name=name, description="Raw events by date and hour"),
        )
        for source in project.sources.values():
            self.add_table(source, bucket)

    def add_table(self, source: Source, bucket: s3.IBucket) -> None:
        """Add the external table of one source."""
        # Athena refuses a table that names a column twice, so a field that is named like a partition key is left out.
        fields = {name: _TYPES[data_type] for name, data_type in source.columns.items() if name not in PARTITION_KEYS}
        generated_id = {GENERATED_ID: "string"} if source.id_column == GENERATED_ID else {}
        columns = {**fields, **_METADATA_COLUMNS, **generated_id}
        table = glue.CfnTable(
            self,
            source.source,
            catalog_id=Stack.of(self).account,
            database_name=self.database.ref,
            table_input=glue.CfnTable.TableInputProperty(
                name=source.source,
                description=source.description or None,
                table_type="EXTERNAL_TABLE",
                parameters={"classification": "parquet", "EXTERNAL": "TRUE"},
                partition_keys=[_column(key, "string") for key in PARTITION_KEYS],
                storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                    columns=[_column(name, data_type) for name, data_type in columns.items()],
                    location=source_prefix(bucket.bucket_name, source.source),
                    input_format=f"{_HIVE}.MapredParquetInputFormat",
                    output_format=f"{_HIVE}.MapredParquetOutputFormat",
                    serde_info=glue.CfnTable.SerdeInfoProperty(
                        serialization_library=f"{_HIVE}.serde.ParquetHiveSerDe",
                        parameters={"serialization.format": "1"},
                    ),
                ),
            ),
        )
        table.add_resource_dependency(self.database)


def _column(name: str, data_type: str) -> glue.CfnTable.ColumnProperty:
    return glue.CfnTable.ColumnProperty(name=name, type=data_type)
