"""Hive types as Spark types, and which assignments preserve a value (P17)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from pyspark.sql import types as T

from acid_platform.engine.spark.failures import TOO_LARGE
from acid_platform.errors import InvalidDefinition, WrongType
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import INTEGRAL, Column, HiveType, struct_of
from acid_platform.values.refusals import Unfit, below, spelled_fields

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


def cast_text(value: str, source: T.DataType, hive: HiveType, inexact: str = "") -> str:
    """SQL of a value of type `source`, which `refusal` accepts, as the column's type.

    A cast alone would match the fields of structs by their position. With `inexact`, the beginning
    of a message, a number fails the job that the type would round.
    """
    if source == spark_type(hive):
        return value
    inexact = inexact if _rounds(source, hive) else ""
    if _same_fields(source, hive) and not inexact and not _overflows(source, hive):
        return f"CAST({value} AS {type_text(hive)})"
    # A lambda's variable, so that the value is computed once.
    return f"transform(array({value}), __v0 -> {_by_name('__v0', source, hive, inexact, 1)})[0]"


def _by_name(value: str, source: T.DataType, hive: HiveType, inexact: str, depth: int) -> str:
    each = f"__v{depth}"

    def transformed(array: str, kind: T.DataType, child: HiveType) -> str:
        return f"transform({array}, {each} -> {_by_name(each, kind, child, inexact, depth + 1)})"

    checked = bool(inexact) and _rounds(source, hive)
    if _same_fields(source, hive) and not checked and not _overflows(source, hive):
        return f"CAST({value} AS {type_text(hive)})"
    if not hive.nested:
        if not checked:
            return _within_float(value)
        return _exactly(value, source, hive, inexact)
    match source:
        case T.ArrayType():
            return transformed(value, source.elementType, hive.children[0][1])
        case T.MapType():
            (_, key), (_, item) = hive.children
            keys = transformed(f"map_keys({value})", source.keyType, key)
            items = transformed(f"map_values({value})", source.valueType, item)
            return f"map_from_arrays({keys}, {items})"
        case T.StructType():
            kinds = {field.name: field.dataType for field in source.fields}
            spelled = spelled_fields(tuple(kinds), hive)
            fields = []
            for name, child in hive.children:
                own = f"CAST(NULL AS {type_text(child)})"
                if name in spelled:
                    field = f"{value}.{quoted(spelled[name])}"
                    own = _by_name(field, kinds[spelled[name]], child, inexact, depth)
                fields.append(f"{sql_string(name)}, {own}")
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(fields)}) END"
    raise AssertionError(f"{source} has no fields")


def _within_float(value: str) -> str:
    """SQL of a double as a float; a number that would become Infinity fails the job (TOO_LARGE)."""
    message = f"concat('{TOO_LARGE} ', CAST({value} AS string), ' is too large for float')"
    return (
        f"CASE WHEN abs({value}) < double('Infinity') AND"
        f" abs(CAST({value} AS float)) = float('Infinity') THEN raise_error({message})"
        f" ELSE CAST({value} AS float) END"
    )


def _overflows(source: T.DataType, hive: HiveType) -> bool:
    """Whether a double becomes a float, at any depth."""
    match source:
        case T.ArrayType():
            return _overflows(source.elementType, hive.children[0][1])
        case T.MapType():
            (_, key), (_, item) = hive.children
            return _overflows(source.keyType, key) or _overflows(source.valueType, item)
        case T.StructType():
            kinds = {field.name: field.dataType for field in source.fields}
            children = dict(hive.children)
            spelled = spelled_fields(tuple(kinds), hive)
            return any(_overflows(kinds[own], children[name]) for name, own in spelled.items())
    return isinstance(source, T.DoubleType) and hive.kind == "float"


def _exactly(value: str, source: T.DataType, hive: HiveType, inexact: str) -> str:
    """SQL of a number as another one from which it can be computed again; else the job fails."""
    stored = f"CAST({value} AS {type_text(hive)})"
    again = f"CAST({stored} AS {source.simpleString()})"
    message = f"concat({sql_string(inexact)}, CAST({value} AS string), ' would be rounded')"
    return (
        f"CASE WHEN {value} IS NULL OR {again} = {value} THEN {stored}"
        f" ELSE raise_error({message}) END"
    )


def _rounds(source: T.DataType, hive: HiveType) -> bool:
    """Whether a number in the type may have less digits than its source."""
    match source:
        case T.ArrayType():
            return _rounds(source.elementType, hive.children[0][1])
        case T.MapType():
            (_, key), (_, item) = hive.children
            return _rounds(source.keyType, key) or _rounds(source.valueType, item)
        case T.StructType():
            kinds = {field.name: field.dataType for field in source.fields}
            children = dict(hive.children)
            spelled = spelled_fields(tuple(kinds), hive)
            return any(_rounds(kinds[own], children[name]) for name, own in spelled.items())
        case T.DecimalType():
            return hive.kind == "decimal" and source.scale > hive.sizes[1]
        case T.DoubleType() | T.FloatType():
            return hive.kind == "decimal"
        case T.LongType():
            return hive.kind in ("float", "double")
    return hive.kind == "float" and isinstance(source, T.IntegerType)


def _same_fields(source: T.DataType, hive: HiveType) -> bool:
    """Whether structs have the fields of the declared type in its order, at every depth."""
    if isinstance(source, T.ArrayType):
        return _same_fields(source.elementType, hive.children[0][1])
    if isinstance(source, T.MapType):
        pairs = zip((source.keyType, source.valueType), hive.children, strict=True)
        return all(_same_fields(kind, child) for kind, (_, child) in pairs)
    if isinstance(source, T.StructType):
        names = [field.name.lower() for field in source.fields]
        return names == [name for name, _ in hive.children] and all(
            _same_fields(field.dataType, child)
            for field, (_, child) in zip(source.fields, hive.children, strict=True)
        )
    return True


def changed_parts(
    value: str,
    hive: HiveType,
    kinds: Container[str],
    change: Callable[[str, HiveType], str],
    depth: int = 0,
) -> str:
    """SQL of a value in which `change` gives the SQL of every part whose type is of these kinds."""
    if not any(part.kind in kinds for part in hive.walk()):
        return value
    each = f"__x{depth}"

    def within(part: str, child: HiveType) -> str:
        return changed_parts(part, child, kinds, change, depth + 1)

    def transformed(array: str, child: HiveType) -> str:
        return f"transform({array}, {each} -> {within(each, child)})"

    match hive.kind:
        case "array":
            return transformed(value, hive.children[0][1])
        case "map":
            (_, key), (_, item) = hive.children
            return (
                f"map_from_arrays({transformed(f'map_keys({value})', key)},"
                f" {transformed(f'map_values({value})', item)})"
            )
        case "struct":
            fields = ", ".join(
                f"{sql_string(name)}, {within(f'{value}.{quoted(name)}', child)}"
                for name, child in hive.children
            )
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"
        case _:
            return change(value, hive)


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
            return struct_of((field.name, hive_type(field.dataType)) for field in spark.fields)
        case T.TimestampNTZType():
            return HiveType("timestamp")
        case _ if type(spark) in _HIVE:
            return HiveType(_HIVE[type(spark)])
    raise InvalidDefinition(f"Spark's {spark.simpleString()} has no Hive type; cast the column")


def refusal(source: T.DataType, target: HiveType) -> str | None:
    """Why a value of `source` may not be stored in `target`, or None if it may.

    The rules are those of Spark's ANSI store assignment, except that fractions may not go into
    integers. Narrowing that may overflow is allowed here; each value is checked when the job runs.
    Raises Unfit for a field of a struct that `target` lacks.
    """
    if source == spark_type(target) or isinstance(source, T.NullType):
        return None
    verdict = f"{source.simpleString()} does not fit {target}; cast it explicitly"
    if target.kind == "array" and isinstance(source, T.ArrayType):
        return _refusal(source.elementType, target.children[0][1], "[]")
    if target.kind == "map" and isinstance(source, T.MapType):
        (_, key), (_, value) = target.children
        return _refusal(source.keyType, key, "[key]") or _refusal(
            source.valueType, value, "[value]"
        )
    if target.kind == "struct" and isinstance(source, T.StructType):
        kinds = {field.name: field.dataType for field in source.fields}
        spelled = spelled_fields(tuple(field.name for field in source.fields), target)
        children = dict(target.children)
        whys = (_refusal(kinds[own], children[name], f".{name}") for name, own in spelled.items())
        return next((why for why in whys if why), None)
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


def _refusal(source: T.DataType, target: HiveType, part: str) -> str | None:
    """As `refusal` of a type around them sees it."""
    with below(part):
        return refusal(source, target)


def require_assignable(source: T.DataType, column: Column, table: str, text: str = "") -> None:
    """Raises WrongType or UnknownColumn if values of the type can't be stored in the column.

    `text`: the expression that the values come from, for the message.
    """
    try:
        why = refusal(source, column.type)
    except Unfit as fault:
        raise fault.error(column, table) from fault
    if why:
        value = f" = {text}" if text else ""
        raise WrongType(f"column {column.name!r} of {table}{value}: {why}")
