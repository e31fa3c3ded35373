"""Times that ORC can't store: the last second before 1970, except its first millisecond, and days
before all that the Julian calendar, in which files count early days, can number.

ORC stores seconds and nanoseconds separately. Before 1970 its writers round the seconds towards
zero; its readers correct that by the sign of the seconds, but zero has no sign. So every engine
would read 1969-12-31 23:59:59.5 as 1970-01-01 00:00:00.5.
"""

from __future__ import annotations

from acid_platform.engine.spark.failures import BEYOND_ORC, NOT_IN_ORC
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import TIMESTAMPS, HiveType
from acid_platform.layout.types import Column as TableColumn

_FIRST, _END = "TIMESTAMP '1969-12-31 23:59:59.001'", "TIMESTAMP '1970-01-01 00:00:00'"
_EARLIEST = {
    "date": "DATE '-5877000-01-01'",
    **dict.fromkeys(TIMESTAMPS, "TIMESTAMP '-290000-01-01 00:00:00'"),
}
"""From there on each type also holds the Julian number of a day, which is lower in such years."""


def storable(value: str, column: TableColumn) -> str:
    """SQL of the value; a row with a time that ORC can't store fails the job (NOT_IN_ORC,
    BEYOND_ORC)."""
    return _checked(value, column.type, column, 0)


def _checked(value: str, kind: HiveType, column: TableColumn, depth: int) -> str:
    if not any(part.kind in _EARLIEST for part in kind.walk()):
        return value
    each = f"__t{depth}"

    def transformed(array: str, item: HiveType) -> str:
        return f"transform({array}, {each} -> {_checked(each, item, column, depth + 1)})"

    match kind.kind:
        case "array":
            return transformed(value, kind.children[0][1])
        case "map":
            (_, key), (_, item) = kind.children
            return (
                f"map_from_arrays({transformed(f'map_keys({value})', key)},"
                f" {transformed(f'map_values({value})', item)})"
            )
        case "struct":
            fields = ", ".join(
                f"{sql_string(name)}, "
                + _checked(f"{value}.{quoted(name)}", child, column, depth + 1)
                for name, child in kind.children
            )
            return f"CASE WHEN {value} IS NOT NULL THEN named_struct({fields}) END"
        case _:
            tests = {BEYOND_ORC: f"{value} < {_EARLIEST[kind.kind]}"}
            if kind.kind in TIMESTAMPS:
                tests[NOT_IN_ORC] = f"{value} >= {_FIRST} AND {value} < {_END}"
            failures = " ".join(
                f"WHEN {test} THEN raise_error(concat("
                f"{sql_string(f'{mark} column {column.name} has ')}, CAST({value} AS string)))"
                for mark, test in tests.items()
            )
            return f"CASE {failures} ELSE {value} END"
