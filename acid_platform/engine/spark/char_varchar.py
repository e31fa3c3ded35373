"""Types that Spark does not tell apart: CHAR and VARCHAR are strings, instants are timestamps.

As in Hive, a CHAR has no trailing blanks in expressions, so that all comparisons ignore them:
joins, groups, windows, sets and subqueries alike. Files, and the frames that callers see, hold it
padded to its length. The metadata of a column tells its type, and for a CHAR that is padded, also
under the key that Spark knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import TOO_LONG
from acid_platform.engine.spark.few_calls import selected
from acid_platform.engine.spark.spark_types import changed_parts
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import CHAR_TYPES, LOCAL_ZONE, Column, HiveType, parse_type

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
    numbered = frame.toDF(*(f"__{place}" for place in range(len(fields))))
    values: list[SparkColumn] = []
    for place, (field, kind) in enumerate(zip(fields, kinds, strict=True)):
        value, metadata = f"__{place}", field.metadata
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
    def checked(one: str, hive: HiveType) -> str:
        message = f"{TOO_LONG} column {column.name} of {table} takes {hive}, a value has "
        error = f"raise_error(concat({sql_string(message)}, length(rtrim({one})), ' characters'))"
        length = hive.sizes[0]
        fitted = f"rpad({one}, {length}, ' ')" if hive.kind == "char" else f"left({one}, {length})"
        return f"CASE WHEN length(rtrim({one})) > {length} THEN {error} ELSE {fitted} END"

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
