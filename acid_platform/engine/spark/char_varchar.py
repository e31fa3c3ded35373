"""CHAR and VARCHAR in Spark, which reads them as strings.

A CHAR is padded to its length in files and in frames. Columns that are read carry Spark's own
metadata for their type, so that comparisons with literals and other CHAR columns ignore trailing
blanks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import TOO_LONG
from acid_platform.layout.sql_text import sql_string
from acid_platform.layout.types import CHAR_TYPES, Column, HiveType, parse_type

_MARK = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's key in a field's metadata."""

_Leaf = Callable[[str, HiveType], str]


def has_char_or_varchar(hive: HiveType) -> bool:
    """Whether the type is CHAR or VARCHAR, or contains one."""
    return any(kind.kind in CHAR_TYPES for kind in hive.walk())


def as_read(value: str, hive: HiveType) -> str:
    """SQL that reads a stored value: CHAR padded, CHAR and VARCHAR cut to their length."""
    return _mapped(value, hive, _cut)


def marked(frame: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """The frame with Spark's type metadata at its CHAR and VARCHAR columns."""
    for column in columns:
        if column.type.kind in CHAR_TYPES and column.name in frame.columns:
            frame = frame.withMetadata(column.name, {_MARK: str(column.type)})
    return frame


def marked_type(field: T.StructField) -> HiveType | None:
    """The CHAR or VARCHAR type of a field with that metadata, else None."""
    return parse_type(field.metadata[_MARK]) if _MARK in field.metadata else None


def to_be_stored(frame: DataFrame, columns: Sequence[Column], table: str) -> DataFrame:
    """The frame with the CHAR and VARCHAR values of `columns` as files store them.

    Trailing blanks beyond the length are cut, as in Hive. Any other value that is too long fails
    the job (TOO_LONG), where Hive would cut it silently.
    """
    stored = {
        column.name: _stored(f"`{column.name}`", column, table)
        for column in columns
        if has_char_or_varchar(column.type)
    }
    if not stored:
        return frame
    # A selection of its own: each value is used twice, and must be computed once.
    return frame.selectExpr(
        *(
            f"{stored[name]} AS `{name}`" if name in stored else f"`{name}`"
            for name in frame.columns
        )
    )


def _stored(value: str, column: Column, table: str) -> str:
    def checked(one: str, hive: HiveType) -> str:
        message = f"{TOO_LONG} column {column.name} of {table} takes {hive}, a value has "
        error = f"raise_error(concat({sql_string(message)}, length(rtrim({one})), ' characters'))"
        return (
            f"CASE WHEN length(rtrim({one})) > {hive.sizes[0]} THEN {error}"
            f" ELSE {_cut(one, hive)} END"
        )

    return _mapped(value, column.type, checked)


def _cut(value: str, hive: HiveType) -> str:
    (length,) = hive.sizes
    return f"rpad({value}, {length}, ' ')" if hive.kind == "char" else f"left({value}, {length})"


def _mapped(value: str, hive: HiveType, leaf: _Leaf, depth: int = 0) -> str:
    """SQL of `value` with `leaf` applied to every CHAR and VARCHAR in it."""
    if not has_char_or_varchar(hive):
        return value
    each = f"__x{depth}"

    def transformed(array: str, kind: HiveType) -> str:
        return f"transform({array}, {each} -> {_mapped(each, kind, leaf, depth + 1)})"

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
                f"'{name}', " + _mapped(f"{value}.`{name}`", child, leaf, depth + 1)
                for name, child in hive.children
            )
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"
        case _:
            return leaf(value, hive)
