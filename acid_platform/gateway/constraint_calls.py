"""Calls that tell of constraints, and their form in the protocol.

Hive checks NOT NULL and CHECK by itself before it writes, and gives defaults. What any engine wrote
is checked at its commit: see `external_writes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from acid_platform.errors import NoSuchTable
from acid_platform.gateway import shapes
from acid_platform.gateway.call_handler import CallHandler
from acid_platform.gateway.protocol import load
from acid_platform.layout.constraints import Constraint, ConstraintKind
from acid_platform.metastore.records import TableRecord
from acid_platform.metastore.table_names import table_name

_FIELDS = {
    ConstraintKind.PRIMARY_KEY: "primaryKeys",
    ConstraintKind.FOREIGN_KEY: "foreignKeys",
    ConstraintKind.UNIQUE: "uniqueConstraints",
    ConstraintKind.NOT_NULL: "notNullConstraints",
    ConstraintKind.DEFAULT: "defaultConstraints",
    ConstraintKind.CHECK: "checkConstraints",
}
"""The fields of the protocol's structs that have the constraints of a kind."""


class ConstraintCalls(CallHandler):
    """Telling of constraints."""

    def _listed(self, database: str, name: str, kind: ConstraintKind) -> list[Any]:
        """Empty for a view too, of which Hive asks as of a table."""
        with suppress(NoSuchTable):
            return [*_shapes(self._record(database, name), kind)]
        return []

    def get_primary_keys(self, request: Any) -> Any:
        listed = self._listed(request.db_name, request.tbl_name, ConstraintKind.PRIMARY_KEY)
        return load().PrimaryKeysResponse(primaryKeys=listed)

    def get_foreign_keys(self, request: Any) -> Any:
        """Those of a table, of the tables that refer to another, or of one that refer to it."""
        names = [one.name for one in self._metastore.tables()]
        if request.foreign_tbl_name:
            names = [table_name(f"{request.foreign_db_name}.{request.foreign_tbl_name}")]
        listed = [
            one
            for name in names
            for one in self._listed(*shapes.split(name), ConstraintKind.FOREIGN_KEY)
            if not request.parent_tbl_name
            or (one.pktable_db, one.pktable_name)
            == ((request.parent_db_name or "").lower(), request.parent_tbl_name.lower())
        ]
        return load().ForeignKeysResponse(foreignKeys=listed)

    def get_unique_constraints(self, request: Any) -> Any:
        listed = self._listed(request.db_name, request.tbl_name, ConstraintKind.UNIQUE)
        return load().UniqueConstraintsResponse(uniqueConstraints=listed)

    def get_not_null_constraints(self, request: Any) -> Any:
        listed = self._listed(request.db_name, request.tbl_name, ConstraintKind.NOT_NULL)
        return load().NotNullConstraintsResponse(notNullConstraints=listed)

    def get_default_constraints(self, request: Any) -> Any:
        listed = self._listed(request.db_name, request.tbl_name, ConstraintKind.DEFAULT)
        return load().DefaultConstraintsResponse(defaultConstraints=listed)

    def get_check_constraints(self, request: Any) -> Any:
        listed = self._listed(request.db_name, request.tbl_name, ConstraintKind.CHECK)
        return load().CheckConstraintsResponse(checkConstraints=listed)

    def get_all_table_constraints(self, request: Any) -> Any:
        m, name = load(), (request.dbName, request.tblName)
        listed = {field: self._listed(*name, kind) for kind, field in _FIELDS.items()}
        return m.AllTableConstraintsResponse(allTableConstraints=m.SQLAllTableConstraints(**listed))


def _shapes(record: TableRecord, kind: ConstraintKind) -> Iterator[Any]:
    """The table's constraints of a kind in the protocol's form: one for each column of a key."""
    m = load()
    database, name = shapes.split(record.name)
    for constraint in record.constraints:
        if constraint.kind is not kind:
            continue
        options = {
            "enable_cstr": constraint.enabled,
            "validate_cstr": constraint.enabled,
            "rely_cstr": constraint.enabled or constraint.rely,
            "catName": shapes.CATALOG,
        }
        own = {"table_db": database, "table_name": name, **options}
        columns = list(enumerate(constraint.columns, 1))
        match kind:
            case ConstraintKind.PRIMARY_KEY:
                for place, column in columns:
                    yield m.SQLPrimaryKey(
                        column_name=column, key_seq=place, pk_name=constraint.name, **own
                    )
            case ConstraintKind.UNIQUE:
                for place, column in columns:
                    yield m.SQLUniqueConstraint(
                        column_name=column, key_seq=place, uk_name=constraint.name, **own
                    )
            case ConstraintKind.FOREIGN_KEY:
                parent_database, parent = shapes.split(constraint.parent)
                pairs = zip(columns, constraint.parent_columns, strict=True)
                for (place, column), parent_column in pairs:
                    yield m.SQLForeignKey(
                        pktable_db=parent_database,
                        pktable_name=parent,
                        pkcolumn_name=parent_column,
                        fktable_db=database,
                        fktable_name=name,
                        fkcolumn_name=column,
                        key_seq=place,
                        update_rule=0,
                        delete_rule=0,
                        fk_name=constraint.name,
                        pk_name="",
                        **options,
                    )
            case ConstraintKind.NOT_NULL:
                yield m.SQLNotNullConstraint(
                    column_name=constraint.columns[0], nn_name=constraint.name, **own
                )
            case ConstraintKind.DEFAULT:
                yield m.SQLDefaultConstraint(
                    column_name=constraint.columns[0],
                    default_value=constraint.text,
                    dc_name=constraint.name,
                    **own,
                )
            case ConstraintKind.CHECK:
                yield m.SQLCheckConstraint(
                    column_name=constraint.columns[0],
                    check_expression=constraint.text,
                    dc_name=constraint.name,
                    **own,
                )


def constraints_of(request: Any) -> list[Constraint]:
    """The constraints of the protocol's request for a new table."""
    constraints = [
        *_keys(request.primaryKeys, ConstraintKind.PRIMARY_KEY, "pk_name"),
        *_keys(request.uniqueConstraints, ConstraintKind.UNIQUE, "uk_name"),
        *_foreign_keys(request.foreignKeys or ()),
    ]
    for one in request.notNullConstraints or ():
        of_column = (one.column_name.lower(),)
        constraints.append(_declared(one, one.nn_name, ConstraintKind.NOT_NULL, of_column))
    for one in request.defaultConstraints or ():
        of_column, text = (one.column_name.lower(),), one.default_value
        constraints.append(_declared(one, one.dc_name, ConstraintKind.DEFAULT, of_column, text))
    for one in request.checkConstraints or ():
        text = one.check_expression
        constraints.append(_declared(one, one.dc_name, ConstraintKind.CHECK, (), text))
    return constraints


def _declared(
    one: Any, name: str | None, kind: ConstraintKind, columns: tuple[str, ...], text: str = ""
) -> Constraint:
    return Constraint(name or "", kind, columns, text, bool(one.enable_cstr), bool(one.rely_cstr))


def _in_order(listed: Sequence[Any], name: str) -> Iterator[list[Any]]:
    """The columns of each key, in their order; `name` is the field with the name of the key."""
    by_key: dict[str, list[Any]] = {}
    for one in listed:
        by_key.setdefault(getattr(one, name) or "", []).append(one)
    for of_key in by_key.values():
        yield sorted(of_key, key=lambda one: int(one.key_seq or 0))


def _keys(listed: Sequence[Any] | None, kind: ConstraintKind, name: str) -> Iterator[Constraint]:
    for of_key in _in_order(listed or (), name):
        columns = tuple(one.column_name.lower() for one in of_key)
        yield _declared(of_key[0], getattr(of_key[0], name), kind, columns)


def _foreign_keys(listed: Sequence[Any]) -> Iterator[Constraint]:
    for of_key in _in_order(listed, "fk_name"):
        first = of_key[0]
        yield Constraint(
            first.fk_name or "",
            ConstraintKind.FOREIGN_KEY,
            tuple(one.fkcolumn_name.lower() for one in of_key),
            enabled=bool(first.enable_cstr),
            rely=bool(first.rely_cstr),
            parent=table_name(f"{first.pktable_db}.{first.pktable_name}"),
            parent_columns=tuple(one.pkcolumn_name.lower() for one in of_key),
        )
