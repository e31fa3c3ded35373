"""Calls that tell of constraints, and their form in the protocol.

Hive checks NOT NULL and CHECK by itself before it writes, and gives defaults. What any engine wrote
is checked at its commit: see `external_writes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from acid_platform.errors import NoSuchTable
from acid_platform.gateway import shapes
from acid_platform.gateway.call_handler import CallHandler
from acid_platform.gateway.protocol import load
from acid_platform.layout.constraints import DECLARED_ONLY, Constraint, ConstraintKind
from acid_platform.layout.declarable import table_name
from acid_platform.metastore.records import TableRecord


class ConstraintForm(NamedTuple):
    """How the protocol tells of the constraints of a kind."""

    listed: str
    """The field with all of them, in answers and in the request for a new table."""
    name: str
    """The field with the name of one."""
    text: str = ""
    """The field with its expression, if it has one."""

    @property
    def struct(self) -> str:
        """One of them; a key has one for each of its columns."""
        return f"SQL{self.answer.removesuffix('sResponse')}"

    @property
    def answer(self) -> str:
        """The struct that answers for this kind alone."""
        return f"{self.listed[0].upper()}{self.listed[1:]}Response"


_FORMS = {
    ConstraintKind.PRIMARY_KEY: ConstraintForm("primaryKeys", "pk_name"),
    ConstraintKind.UNIQUE: ConstraintForm("uniqueConstraints", "uk_name"),
    ConstraintKind.FOREIGN_KEY: ConstraintForm("foreignKeys", "fk_name"),
    ConstraintKind.NOT_NULL: ConstraintForm("notNullConstraints", "nn_name"),
    ConstraintKind.DEFAULT: ConstraintForm("defaultConstraints", "dc_name", "default_value"),
    ConstraintKind.CHECK: ConstraintForm("checkConstraints", "dc_name", "check_expression"),
}


def of_kind(kind: ConstraintKind) -> Callable[[ConstraintCalls, Any], Any]:
    """The call that asks for the constraints of this kind of a table."""

    def method(self: ConstraintCalls, request: Any) -> Any:
        return _answer(kind, self._listed(request.db_name, request.tbl_name, kind))

    return method


class ConstraintCalls(CallHandler):
    def _listed(self, database: str, name: str, kind: ConstraintKind) -> list[Any]:
        """Empty for a view too, of which Hive asks as of a table."""
        with suppress(NoSuchTable):
            return [*_shapes(self._record(database, name), kind)]
        return []

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
        return _answer(ConstraintKind.FOREIGN_KEY, listed)

    def get_all_table_constraints(self, request: Any) -> Any:
        m, name = load(), (request.dbName, request.tblName)
        listed = {form.listed: self._listed(*name, kind) for kind, form in _FORMS.items()}
        return m.AllTableConstraintsResponse(allTableConstraints=m.SQLAllTableConstraints(**listed))


def _answer(kind: ConstraintKind, listed: list[Any]) -> Any:
    form = _FORMS[kind]
    return getattr(load(), form.answer)(**{form.listed: listed})


def _shapes(record: TableRecord, kind: ConstraintKind) -> Iterator[Any]:
    """The table's constraints of a kind in the protocol's form: one for each column of a key."""
    form, is_key = _FORMS[kind], kind in DECLARED_ONLY
    database, name = shapes.split(record.name)
    for constraint in record.constraints:
        if constraint.kind is not kind:
            continue
        for place, column in enumerate(constraint.columns if is_key else constraint.columns[:1]):
            fields = {
                form.name: constraint.name,
                "enable_cstr": constraint.enabled,
                "validate_cstr": constraint.enabled,
                "rely_cstr": constraint.enabled or constraint.rely,
                "catName": shapes.CATALOG,
            }
            if is_key:
                fields["key_seq"] = place + 1
            if form.text:
                fields[form.text] = constraint.text
            if kind is ConstraintKind.FOREIGN_KEY:
                parent_database, parent = shapes.split(constraint.parent)
                fields |= {
                    "pktable_db": parent_database,
                    "pktable_name": parent,
                    "pkcolumn_name": constraint.parent_columns[place],
                    "pk_name": "",
                    "fktable_db": database,
                    "fktable_name": name,
                    "fkcolumn_name": column,
                    "update_rule": 0,
                    "delete_rule": 0,
                }
            else:
                fields |= {"table_db": database, "table_name": name, "column_name": column}
            yield getattr(load(), form.struct)(**fields)


def constraints_of(request: Any) -> list[Constraint]:
    """The constraints of the protocol's request for a new table."""
    constraints: list[Constraint] = []
    for kind, form in _FORMS.items():
        listed = getattr(request, form.listed) or ()
        if kind not in DECLARED_ONLY:
            constraints += [_declared(kind, [one]) for one in listed]
            continue
        by_name: dict[str, list[Any]] = {}
        for one in listed:
            by_name.setdefault(getattr(one, form.name) or "", []).append(one)
        for columns in by_name.values():
            columns.sort(key=lambda one: int(one.key_seq or 0))
            constraints.append(_declared(kind, columns))
    return constraints


def _declared(kind: ConstraintKind, listed: Sequence[Any]) -> Constraint:
    """A constraint; `listed`: for each column of a key, in their order."""
    form, first = _FORMS[kind], listed[0]
    is_foreign = kind is ConstraintKind.FOREIGN_KEY
    columns = [one.fkcolumn_name if is_foreign else one.column_name for one in listed]
    return Constraint(
        getattr(first, form.name) or "",
        kind,
        () if kind is ConstraintKind.CHECK else tuple(column.lower() for column in columns),
        getattr(first, form.text) if form.text else "",
        bool(first.enable_cstr),
        bool(first.rely_cstr),
        table_name(f"{first.pktable_db}.{first.pktable_name}") if is_foreign else "",
        tuple(one.pkcolumn_name.lower() for one in listed) if is_foreign else (),
    )
