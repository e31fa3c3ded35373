"""The columns by which compactions sort the rows of a table (P85).

ORC keeps the keys of rows in the order of its files, so that Hive finds them; files in Parquet have
them in any order. So a table with full ACID is sorted in Parquet alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.table_properties import SORT_COLUMNS
from acid_platform.layout.types import parse_type

_SORTED = (
    *("tinyint", "smallint", "int", "bigint", "decimal", "date", "timestamp", "string", "varchar"),
)
"""The types with bounds in files, by which readers leave out row groups."""


def sort_columns(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Their names, in lower case; empty: rows stay in the order of their keys."""
    names = (name.strip().lower() for name in SORT_COLUMNS.text(properties).split(","))
    return tuple(name for name in names if name)


def check_sort_columns(
    table: str, properties: Mapping[str, str], columns: Iterable[tuple[str, str]]
) -> None:
    """Raises InvalidDefinition unless the table can be sorted so. `columns`: names and types,
    without those of partitions."""
    names, types = sort_columns(properties), {name.lower(): kind for name, kind in columns}
    if not names:
        return
    what, stored = f"{table}: {SORT_COLUMNS.name}={','.join(names)}", FileFormat.of(properties)
    if not stored.keyed or stored.name != "parquet":
        raise InvalidDefinition(
            f"{what} needs a table with full ACID in Parquet, whose files may have the keys of rows"
            " in any order; set acid.format to parquet, or remove the property first"
        )
    for name in names:
        if name not in types:
            raise InvalidDefinition(
                f"{what}: there is no column {name!r}, or it is one of partitions, which have files"
                f" of their own; the columns are {', '.join(types)}; to drop or rename one, change"
                f" {SORT_COLUMNS.name} first"
            )
        if parse_type(types[name]).kind not in _SORTED:
            raise InvalidDefinition(
                f"{what}: files have no bounds of column {name!r} {types[name]}, so that its order"
                f" would help no reader; sort by {', '.join(_SORTED)}"
            )
    if len({*names}) < len(names):
        raise InvalidDefinition(f"{what} names a column twice")
