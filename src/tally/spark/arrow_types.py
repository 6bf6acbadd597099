"""Spark's types as Arrow's, of the columns that Tally hands to Python."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa


def nullable(fields: Sequence[StructField]) -> StructType:
    """A schema of columns that may all be null; Spark takes what may not be null for a value."""
    return StructType([StructField(field.name, field.dataType) for field in fields])


def arrow_schema(schema: StructType) -> "pa.Schema":
    """A schema of strings, numbers, booleans, bytes and timestamps in UTC."""
    import pyarrow as pa  # noqa: PLC0415 - may not be installed where nothing needs it

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(f.name, types[f.dataType.simpleString()]) for f in schema.fields])
