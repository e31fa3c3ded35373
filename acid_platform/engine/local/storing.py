"""Values as a table's column stores them: which types fit, and the casts with Spark's errors.

The rules are those of Spark's ANSI store assignment, except that fractions may not go into whole
numbers.
"""

from __future__ import annotations

from acid_platform.engine.local.casts import Typed, cast
from acid_platform.engine.local.duckdb_types import (
    DATE,
    NUMERIC,
    STRING,
    TIMESTAMP,
    VOID,
    duckdb_type,
    of_value,
    spark_name,
)
from acid_platform.engine.local.failures import too_long
from acid_platform.errors import NeedsSpark, WrongType
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, Column, HiveType


def stored(value: Typed, column: Column, table: str, shown: str = "") -> str:
    """SQL that casts a value to the type of the table's column, with CHAR and VARCHAR cut.

    `shown` is the expression for messages of UPDATE, as in `column 'a' of t = upper(x)`. Raises
    WrongType if the type does not fit, NeedsSpark for a cast that is not known to be equal. The SQL
    fails with WrongType for a value that does not fit.
    """
    if why := refusal(value.type, column.type):
        what = f" = {shown}" if shown else ""
        raise WrongType(f"column {column.name!r} of {table}{what}: {why}")
    if any(kind.kind in CHAR_TYPES for kind in column.type.walk()) and column.type.nested:
        raise NeedsSpark(f"writing {column}")
    if column.type.nested and value.type == VOID:
        return f"CAST(NULL AS {duckdb_type(column.type)})"
    done = cast(value, column.type).sql
    return _fitted(done, column, table) if column.type.kind in CHAR_TYPES else done


def _fitted(value: str, column: Column, table: str) -> str:
    """Blanks beyond the length are cut, as in Hive; any other text that is too long fails."""
    (length,) = column.type.sizes
    size = f"length(rtrim({value}, ' '))"
    failure = too_long(f"column {column.name} of {table} takes {column.type}, a value has ", size)
    cut = f"left({value}, {length})"
    if column.type.kind == "char":
        cut = f"rpad({value}, {length}, ' ')"
    return f"CASE WHEN {size} > {length} THEN {failure} ELSE {cut} END"


def refusal(source: HiveType, target: HiveType) -> str | None:
    """Why a value of `source` may not be stored in `target`, or None if it may."""
    wanted = of_value(target)
    if source in (wanted, VOID):
        return None
    verdict = f"{spark_name(source)} does not fit {target}; cast it explicitly"
    if target.kind == source.kind and target.nested:
        if [name for name, _ in source.children] != [name for name, _ in target.children]:
            return verdict
        pairs = zip(source.children, target.children, strict=True)
        return next((why for (_, a), (_, b) in pairs if (why := refusal(a, b))), None)
    if target.nested or source.nested:
        return verdict
    whole = source.kind in INTEGRAL or (source.kind == "decimal" and source.sizes[1] == 0)
    fits = {
        **dict.fromkeys(INTEGRAL, whole),
        **dict.fromkeys(("decimal", "float", "double"), source.kind in NUMERIC),
        STRING.kind: source.kind != "binary",
        TIMESTAMP.kind: source in (DATE, TIMESTAMP),
    }
    return None if fits.get(wanted.kind, False) else verdict
