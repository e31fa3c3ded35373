"""Hive types as Spark types, and which assignments preserve a value (P17).

Spark does not tell some apart: CHAR and VARCHAR are strings, instants are timestamps. As in Hive, a
CHAR has no trailing blanks in expressions, so that all comparisons ignore them: joins, groups,
windows, sets and subqueries alike. Files, and the frames that callers see, hold it padded to its
length. The metadata of a column tells its type, and for a CHAR that is padded, also under the key
that Spark knows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import TOO_LARGE, TOO_LONG
from acid_platform.engine.spark.few_calls import selected
from acid_platform.errors import InvalidDefinition, WrongType
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import (
    CHAR_TYPES,
    INTEGRAL,
    LOCAL_ZONE,
    Column,
    HiveType,
    parse_type,
    struct_of,
)
from acid_platform.values.fitting import Unfit, below, spelled_fields

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


_TYPE, _OF_SPARK = "__acid_type", "__CHAR_VARCHAR_TYPE_STRING"
"""Keys in a field's metadata: ours, and Spark's, which says that values are padded."""


def has_char_or_varchar(hive: HiveType) -> bool:
    """Whether the type is CHAR or VARCHAR, or contains one."""
    return any(kind.kind in CHAR_TYPES for kind in hive.walk())


def as_read(value: str, hive: HiveType) -> str:
    """SQL that reads a stored value: cut to its length, a CHAR without trailing blanks."""
    return _mapped(value, hive, _bare)


def marked(frame: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """The frame with the types of its columns, of which CHAR has no trailing blanks."""
    for column in columns:
        if column.type.is_told and column.name in frame.columns:
            frame = frame.withMetadata(column.name, {_TYPE: str(column.type)})
    return frame


def marked_type(field: T.StructField) -> HiveType | None:
    """The type that a field's metadata tells, else None."""
    text = field.metadata.get(_TYPE) or field.metadata.get(_OF_SPARK)
    with suppress(InvalidDefinition):  # a frame of the caller's may have a type of Spark alone
        return parse_type(text) if text else None
    return None


def marked_columns(frame: DataFrame) -> tuple[Column, ...]:
    """The columns of a frame with metadata as their types; others count as strings."""
    return tuple(
        Column(field.name.lower(), marked_type(field) or HiveType("string"))
        for field in frame.schema.fields
    )


def shown(frame: DataFrame) -> DataFrame:
    """A frame for the caller: CHAR padded, with Spark's metadata."""

    def chosen(value: str, kind: HiveType) -> tuple[str, dict[str, str]]:
        if not has_char_or_varchar(kind):
            return value, {_TYPE: str(kind)}
        # Spark parses it, and knows no other name of its timestamp.
        of_spark = str(kind).replace(LOCAL_ZONE, "timestamp")
        return _mapped(value, kind, _padded), {_TYPE: str(kind), _OF_SPARK: of_spark}

    return _retyped(frame, chosen)


def as_values(frame: DataFrame) -> DataFrame:
    """A frame of a caller for expressions: CHAR without its trailing blanks."""
    return _retyped(frame, lambda value, kind: (_mapped(value, kind, _trimmed), {_TYPE: str(kind)}))


def without_types(frame: DataFrame) -> DataFrame:
    """The frame without the metadata of `marked`."""
    # Without metadata of its own, the new column would keep that of the old one.
    return _retyped(frame, lambda value, _: (value, {_TYPE: ""}))


def stripped(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """A frame of exactly these columns, with those that are CHAR as expressions see them."""
    if not any(column.type.has_char for column in columns):
        return frame
    names = [(f"`{column.name}`", column.type) for column in columns]
    chosen = (f"{_mapped(name, kind, _trimmed)} AS {name}" for name, kind in names)
    return marked(frame.selectExpr(*chosen), columns)


def _retyped(
    frame: DataFrame, chosen: Callable[[str, HiveType], tuple[str, dict[str, str]]]
) -> DataFrame:
    """The frame with other values and metadata where its metadata tells the type."""
    fields = frame.schema.fields
    kinds = [marked_type(field) for field in fields]
    if not any(kinds):
        return frame
    numbered = frame.toDF(*(f"__{index}" for index in range(len(fields))))
    values: list[SparkColumn] = []
    for index, (field, kind) in enumerate(zip(fields, kinds, strict=True)):
        value, metadata = f"__{index}", field.metadata
        if kind is not None:
            value, metadata = chosen(value, kind)
        values.append(F.expr(value).alias(field.name, metadata=metadata))
    return numbered.select(*values)


def with_limited_texts(frame: DataFrame, columns: Sequence[Column], table: str) -> DataFrame:
    """The frame with the CHAR and VARCHAR values of `columns` as files store them.

    Trailing blanks beyond the length are cut, as in Hive. Any other value that is too long fails
    the job (TOO_LONG), where Hive would cut it silently.
    """
    stored = {
        column.name: _stored(quoted(column.name), column, table)
        for column in columns
        if has_char_or_varchar(column.type)
    }
    if not stored:
        return frame
    # A selection of its own: each value is used twice, and must be computed once.
    return selected(
        frame,
        [
            f"{stored[name]} AS {quoted(name)}" if name in stored else quoted(name)
            for name in frame.columns
        ],
    )


def _stored(value: str, column: Column, table: str) -> str:
    def checked(text: str, hive: HiveType) -> str:
        message = f"{TOO_LONG} column {column.name} of {table} takes {hive}, a value has "
        error = f"raise_error(concat({sql_string(message)}, length(rtrim({text})), ' characters'))"
        length = hive.sizes[0]
        fitted = (
            f"rpad({text}, {length}, ' ')" if hive.kind == "char" else f"left({text}, {length})"
        )
        return f"CASE WHEN length(rtrim({text})) > {length} THEN {error} ELSE {fitted} END"

    return _mapped(value, column.type, checked)


def _padded(value: str, hive: HiveType) -> str:
    """SQL of a value with its blanks; one that is too long stays, for the statement to refuse."""
    length = f"greatest({hive.sizes[0]}, length({value}))"
    return f"rpad({value}, {length}, ' ')" if hive.kind == "char" else value


def _trimmed(value: str, hive: HiveType) -> str:
    """SQL of a value that may be too long, which only its storing refuses."""
    return f"rtrim({value})" if hive.kind == "char" else value


def _bare(value: str, hive: HiveType) -> str:
    cut = f"left({value}, {hive.sizes[0]})"
    return f"rtrim({cut})" if hive.kind == "char" else cut


def _mapped(value: str, hive: HiveType, leaf: Callable[[str, HiveType], str]) -> str:
    """SQL of `value` with `leaf` applied to every CHAR and VARCHAR in it."""
    return changed_parts(value, hive, CHAR_TYPES, leaf)
