"""`information_schema`: what is declared, as tables of a session for the statements that name them.

There is no such database: each statement gets them anew, as the metastore has the declarations when
it begins. Nothing of the session itself is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from acid_platform.engine.interface import ArrowResult
from acid_platform.layout.table_properties import COMMENT
from acid_platform.layout.types import ConstraintKind, parse_type
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import TableRecord, ViewRecord
from acid_platform.values.arrow_types import arrow_type

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

DATABASE = "information_schema"
_CATALOG = "spark_catalog"
_NAMED = "table_catalog string, table_schema string, table_name string"
Row = Sequence[object]


def named_in(text: str) -> list[str]:
    """The tables whose names occur in the text of a statement."""
    plain = text.replace("`", "").lower()
    return [name for name in _TABLES if f"{DATABASE}.{name}" in plain]


def rows_of(warehouse: Warehouse, name: str) -> ArrowResult:
    """The rows of one of the tables."""
    columns, rows = _TABLES[name]
    names, kinds = zip(*(column.split(" ") for column in columns.split(", ")), strict=True)
    types = [arrow_type(parse_type(kind)) for kind in kinds]
    every = [*rows(warehouse)]
    cells = zip(*every, strict=True) if every else [()] * len(names)
    arrays = [pa.array(list(column), kind) for column, kind in zip(cells, types, strict=True)]
    table = pa.Table.from_arrays(arrays, list(names))
    return ArrowResult(table, lambda: warehouse.spark, "the declarations of the metastore")


def _schemata(warehouse: Warehouse) -> Iterator[Row]:
    for name in warehouse.metastore.databases():
        record = warehouse.metastore.call(ops.GetDatabase(name))
        yield _CATALOG, name, record.owner, record.comment or None


def _declared(warehouse: Warehouse) -> Iterator[tuple[TableRecord | ViewRecord, list[str]]]:
    """All tables, and what is no table, each with the parts of its name."""
    metastore = warehouse.metastore
    every: list[TableRecord | ViewRecord] = [*metastore.tables(), *metastore.views()]
    for record in every:
        yield record, [_CATALOG, *record.name.split(".", 1)]


def _tables(warehouse: Warehouse) -> Iterator[Row]:
    for record, names in _declared(warehouse):
        kind = "MANAGED"
        if isinstance(record, ViewRecord):
            kind = "VIEW" if record.external is None else "EXTERNAL"
        inserted = "YES" if kind == "MANAGED" else "NO"
        yield *names, kind, inserted, record.properties.get(COMMENT) or None


def _columns(warehouse: Warehouse) -> Iterator[Row]:
    for record, names in _declared(warehouse):
        keys = record.partition_columns if isinstance(record, TableRecord) else ()
        constraints = record.constraints if isinstance(record, TableRecord) else ()
        of = {(each.kind, each.columns): each for each in constraints}
        indexes = {name: index for index, (name, _) in enumerate(keys, 1)}
        for position, (name, kind) in enumerate((*record.columns, *keys), 1):
            default = of.get((ConstraintKind.DEFAULT, (name,)))
            nullable = (ConstraintKind.NOT_NULL, (name,)) not in of
            yield (
                *names,
                name,
                position,
                default.text if default else None,
                "YES" if nullable else "NO",
                kind,
                indexes.get(name),
                record.comments.get(name),
            )


def _views(warehouse: Warehouse) -> Iterator[Row]:
    for record, names in _declared(warehouse):
        if isinstance(record, ViewRecord) and record.external is None:
            yield *names, record.query


_TABLES: dict[str, tuple[str, Callable[[Warehouse], Iterator[Row]]]] = {
    "schemata": ("catalog_name string, schema_name string, schema_owner string, comment string",
                 _schemata),
    "tables": (f"{_NAMED}, table_type string, is_insertable_into string, comment string", _tables),
    "columns": (f"{_NAMED}, column_name string, ordinal_position int, column_default string,"
                " is_nullable string, data_type string, partition_index int, comment string",
                _columns),
    "views": (f"{_NAMED}, view_definition string", _views),
}  # fmt: skip
