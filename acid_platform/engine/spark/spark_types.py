"""Hive types as Spark types, and which assignments preserve a value (P17)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from acid_platform.errors import InvalidDefinition
from acid_platform.layout import schema
from acid_platform.layout.types import INTEGRAL, Column, HiveType

_SPARK: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "varchar": T.StringType(),
    "char": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp with local time zone": T.TimestampType(),
}
_HIVE = {
    type(spark): kind
    for kind, spark in _SPARK.items()
    if kind not in ("varchar", "char", "timestamp with local time zone")
}


def spark_type(hive: HiveType) -> T.DataType:
    match hive.kind:
        case "decimal":
            return T.DecimalType(*hive.sizes)
        case "array":
            return T.ArrayType(spark_type(hive.children[0][1]))
        case "map":
            (_, key), (_, value) = hive.children
            return T.MapType(spark_type(key), spark_type(value))
        case "struct":
            return T.StructType([T.StructField(n, spark_type(c)) for n, c in hive.children])
        case kind:
            return _SPARK[kind]


def type_text(hive: HiveType) -> str:
    """The Spark type as SQL writes it in CAST."""
    match hive.kind:
        case "array":
            return f"array<{type_text(hive.children[0][1])}>"
        case "map":
            (_, key), (_, value) = hive.children
            return f"map<{type_text(key)}, {type_text(value)}>"
        case "struct":
            fields = (f"{quoted(name)}: {type_text(child)}" for name, child in hive.children)
            return f"struct<{', '.join(fields)}>"
        case _:
            return spark_type(hive).simpleString()


def quoted(name: str) -> str:
    """A column's name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def cast_text(value: str, given: T.DataType, hive: HiveType) -> str:
    """SQL of a value of type `given` as the column's type."""
    return value if given == spark_type(hive) else f"CAST({value} AS {type_text(hive)})"


def spark_schema(columns: Iterable[Column]) -> T.StructType:
    return T.StructType([T.StructField(c.name, spark_type(c.type)) for c in columns])


def hive_type(spark: T.DataType) -> HiveType:
    """The Hive type that stores a Spark type without loss. Raises InvalidDefinition."""
    match spark:
        case T.DecimalType():
            return HiveType("decimal", (spark.precision, spark.scale))
        case T.ArrayType():
            return HiveType("array", (), (("element", hive_type(spark.elementType)),))
        case T.MapType():
            return HiveType(
                "map",
                (),
                (("key", hive_type(spark.keyType)), ("value", hive_type(spark.valueType))),
            )
        case T.StructType():
            return HiveType(
                "struct", (), tuple((f.name.lower(), hive_type(f.dataType)) for f in spark.fields)
            )
        case T.TimestampNTZType():
            return HiveType("timestamp")
        case _ if type(spark) in _HIVE:
            return HiveType(_HIVE[type(spark)])
    raise InvalidDefinition(f"Spark's {spark.simpleString()} has no Hive type; cast the column")


def refusal(source: T.DataType, target: HiveType) -> str | None:
    """Why a value of `source` may not be stored in `target`, or None if it may.

    The rules are those of Spark's ANSI store assignment, except that fractions may not go into
    integers. Narrowing that may overflow is allowed here; each value is checked when the job runs.
    """
    wanted = spark_type(target)
    if source == wanted or isinstance(source, T.NullType):
        return None
    verdict = f"{source.simpleString()} does not fit {target}; cast it explicitly"
    if target.kind == "array" and isinstance(source, T.ArrayType):
        return refusal(source.elementType, target.children[0][1])
    if target.kind == "map" and isinstance(source, T.MapType):
        return refusal(source.keyType, target.children[0][1]) or refusal(
            source.valueType, target.children[1][1]
        )
    if target.kind == "struct" and isinstance(source, T.StructType):
        if [f.name.lower() for f in source.fields] != [name for name, _ in target.children]:
            return verdict
        return next(
            (
                why
                for field, (_, child) in zip(source.fields, target.children, strict=True)
                if (why := refusal(field.dataType, child))
            ),
            None,
        )
    if target.nested or isinstance(source, T.ArrayType | T.MapType | T.StructType):
        return verdict
    if target.kind in ("string", "varchar", "char"):
        return verdict if isinstance(source, T.BinaryType) else None
    whole = isinstance(source, T.IntegralType) or (
        isinstance(source, T.DecimalType) and source.scale == 0
    )
    if target.kind in INTEGRAL:
        return None if whole else verdict
    if target.kind in ("decimal", "float", "double"):
        return None if isinstance(source, T.NumericType) else verdict
    if target.kind == "timestamp":
        return None if isinstance(source, T.TimestampNTZType | T.DateType) else verdict
    return verdict


def event_schema(row: T.StructType) -> T.StructType:
    """The six columns of ACID files."""
    kinds = (T.IntegerType(), T.LongType(), T.IntegerType(), T.LongType(), T.LongType(), row)
    return T.StructType(
        [T.StructField(name, kind) for name, kind in zip(schema.ACID_COLUMNS, kinds, strict=True)]
    )
