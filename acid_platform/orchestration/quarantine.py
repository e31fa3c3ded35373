"""Rows that fail an expectation with `quarantine=True` go into a table beside the asset's.

Both tables are written in one transaction. Which rows fail is a condition in Spark's SQL, that
Spark or Arrow evaluates on the rows that a body returned, before any is written: an upsert with a
row that fails leaves the row that is there. Great Expectations still judges what would be
committed.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa

from acid_platform.base.clock import wall_ms
from acid_platform.engine.choice import Choice
from acid_platform.errors import InvalidDefinition, NeedsSpark, UnsupportedStatement
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column, parse_columns
from acid_platform.orchestration.body_rows import BodyRows, LocalRows, SparkRows
from acid_platform.orchestration.checks import Expectation, Finding, data_docs
from acid_platform.values.arrow_numpy import filled, from_numpy

BY, RUN, AT = "quarantined_by", "quarantined_run", "quarantined_at"
"""Columns of the table of rejected rows: the names of the checks, the id of the run, the time."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """How many rows a run rejected."""

    table: str = ""
    """Where they are."""
    rows: int = 0
    by_check: Mapping[str, int] = field(default_factory=dict)

    def with_warnings(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings, in which a check that rejected rows warns of them."""
        if not self.rows:
            return list(findings)
        warned = [
            replace(finding, passed=False, blocking=False, details=self._details(finding))
            if finding.passed and self.by_check.get(finding.name)
            else finding
            for finding in findings
        ]
        page = data_docs(warned)
        return [replace(finding, docs=page) if finding.docs else finding for finding in warned]

    def _details(self, finding: Finding) -> dict[str, Any]:
        count = self.by_check[finding.name]
        return {**finding.details, "unexpected_count": count, "quarantine": self.table}

    @property
    def metadata(self) -> dict[str, dg.MetadataValue]:
        if not self.rows:
            return {}
        return {
            "quarantine": dg.MetadataValue.text(self.table),
            "quarantined rows": dg.MetadataValue.int(self.rows),
        }


def set_aside(
    warehouse: Warehouse,
    txn: Transaction,
    table: str,
    rows: BodyRows,
    expectations: Sequence[Expectation],
    run_id: str,
) -> tuple[BodyRows, Quarantined]:
    """Writes the rows that fail into the table of rejected rows, which is made for the first of
    them; returns the others.

    Raises NeedsSpark, and WrongType if that table has other types.
    """
    _refuse_names(rows.columns, table)
    names = rows.names
    failing = {each.name: failing_rows(each, names) for each in expectations}
    accepted, rejected, counts = _split(warehouse, rows.computed(), failing)
    if not any(counts.values()):
        return accepted, Quarantined()
    columns = (*rows.columns, *parse_columns(f"{BY} string, {RUN} string, {AT} timestamp"))
    name = f"{table}_quarantine"
    warehouse.create_table(name, _declared(columns), if_not_exists=True)
    quarantine = txn.table(name)
    there = {column.name for column in quarantine.columns}
    if new := [column for column in columns if column.name not in there]:
        quarantine.add_columns(_declared(new))
    at = datetime.datetime.fromtimestamp(wall_ms() / 1000, datetime.UTC)
    stamps = {RUN: run_id, AT: at.strftime("%Y-%m-%d %H:%M:%S.%f")}
    stamped = replace(rejected, columns=columns).with_constants(stamps)
    return accepted, Quarantined(name, quarantine.insert(stamped.rows), counts)


def _declared(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)


# --- which rows fail ----------------------------------------------------------------------------


def require_row_level(
    expectations: Sequence[Expectation], columns: Sequence[Column], owner: str
) -> None:
    """Raises InvalidDefinition for an expectation with `quarantine` that no row fails by itself, or
    whose arguments are about several rows."""
    chosen = [each for each in expectations if each.quarantine]
    for each in chosen:
        if each.kind not in _CONDITIONS:
            raise InvalidDefinition(
                f"{owner}: the check {each.name}: {each.kind} says not which row fails; with"
                f" quarantine=True there are {', '.join(sorted(_CONDITIONS))}"
            )
        arguments = _CONDITIONS[each.kind][0]
        if other := [name for name in each.arguments if name not in (*arguments, *_TEXTS)]:
            raise InvalidDefinition(
                f"{owner}: the check {each.name}: with quarantine=True each row counts, so leave"
                f" {other[0]} out"
            )
        try:
            failing_rows(each, [column.lower() for column in each.columns])
        except TypeError as error:
            raise InvalidDefinition(f"{owner}: the check {each.name}: {error}") from error
    if chosen:
        _refuse_names(columns, owner)


def _refuse_names(columns: Sequence[Column], owner: str) -> None:
    if taken := {column.name for column in columns} & {BY, RUN, AT}:
        raise InvalidDefinition(
            f"{owner}: the column {min(taken)} has the name of a column of the table of rejected"
            " rows; rename it"
        )


def failing_rows(expectation: Expectation, names: Sequence[str]) -> str:
    """The condition for the rows that fail; `names` are the columns that the rows have.

    Raises TypeError for a value that has no literal.
    """
    column = str(expectation.arguments["column"]).lower()
    if column not in names:  # it is NULL then
        return "true" if expectation.kind == _NOT_NULL else "false"
    return _CONDITIONS[expectation.kind][1](quoted(column), expectation.arguments)


def _outside(column: str, arguments: Mapping[str, Any]) -> str:
    tests = []
    if (low := arguments.get("min_value")) is not None:
        tests.append(f"{column} {'<=' if arguments.get('strict_min') else '<'} {_literal(low)}")
    if (high := arguments.get("max_value")) is not None:
        tests.append(f"{column} {'>=' if arguments.get('strict_max') else '>'} {_literal(high)}")
    return " OR ".join(tests) or "false"


def _among(column: str, arguments: Mapping[str, Any]) -> str:
    values = [_literal(value) for value in arguments["value_set"] if value is not None]
    return f"{column} IN ({', '.join(values)})" if values else f"{column} <> {column}"


_NOT_NULL = "ExpectColumnValuesToNotBeNull"
_CONDITIONS: Mapping[str, tuple[tuple[str, ...], Callable[[str, Mapping[str, Any]], str]]] = {
    _NOT_NULL: (("column",), lambda column, _: f"{column} IS NULL"),
    "ExpectColumnValuesToBeNull": (("column",), lambda column, _: f"{column} IS NOT NULL"),
    "ExpectColumnValuesToBeBetween": (
        ("column", "min_value", "max_value", "strict_min", "strict_max"),
        _outside,
    ),
    "ExpectColumnValuesToBeInSet": (
        ("column", "value_set"),
        lambda column, arguments: f"NOT ({_among(column, arguments)})",
    ),
    "ExpectColumnValuesToNotBeInSet": (("column", "value_set"), _among),
    "ExpectColumnValuesToMatchRegex": (
        ("column", "regex"),
        lambda column, arguments: f"NOT {column} RLIKE {_literal(arguments['regex'])}",
    ),
}
"""By the kind of the expectation: its arguments, and the condition for rows that fail it."""
_TEXTS = ("notes", "description", "severity")


def _literal(value: Any) -> str:
    """Raises TypeError."""
    match value:
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case datetime.datetime() if value.tzinfo is None:
            return f"TIMESTAMP '{value}'"
        case datetime.date() if not isinstance(value, datetime.datetime):
            return f"DATE '{value}'"
        case str():
            return sql_string(value)
    raise TypeError(f"{value!r} is no number, text, date or time without a zone")


Split = tuple[BodyRows, BodyRows, dict[str, int]]
"""The rows that hold, those that fail with the names of their checks, and their number by check."""


def _split(warehouse: Warehouse, rows: BodyRows, failing: Mapping[str, str]) -> Split:
    if isinstance(rows, SparkRows):
        return _split_by_spark(rows, failing)

    def work(choice: Choice) -> Split:
        if choice.engine.name == "local":
            return _split_by_arrow(rows, failing)
        from acid_platform.engine.spark.input_rows import as_frame

        frame = as_frame(warehouse.spark, rows.rows, rows.columns, rows.table)
        return _split_by_spark(SparkRows(frame, rows.columns), failing)

    return warehouse.engines.run(work, warehouse.metastore.in_force, rows.rows)


def _split_by_arrow(rows: LocalRows, failing: Mapping[str, str]) -> Split:
    """Raises NeedsSpark for a condition that only Spark evaluates."""
    from acid_platform.predicates.arrow_predicates import arrow_predicate  # loads sqlglot

    count = rows.held.num_rows
    values = {
        name: column.combine_chunks()
        for name, column in zip(rows.names, rows.held.columns, strict=True)
    }
    masks: dict[str, np.ndarray] = {}
    for check, condition in failing.items():
        try:
            mask = arrow_predicate(condition, rows.columns, rows.table).mask(values)
        except UnsupportedStatement as error:
            raise NeedsSpark(f"the condition of the check {check}: {error}") from error
        masks[check] = (
            np.full(count, bool(mask.as_py()))
            if isinstance(mask, pa.Scalar)
            else filled(mask, False)
        )
    fails = np.logical_or.reduce([*masks.values()])
    checks = [
        ", ".join(check for check, mask in masks.items() if mask[row])
        for row in np.flatnonzero(fails)
    ]
    rejected = rows.held.filter(from_numpy(fails)).append_column(BY, pa.array(checks, pa.string()))
    return (
        replace(rows, rows=rows.held.filter(from_numpy(~fails))),
        replace(rows, rows=rejected),
        {check: int(mask.sum()) for check, mask in masks.items()},
    )


def _split_by_spark(rows: SparkRows, failing: Mapping[str, str]) -> Split:
    names = [
        f"CASE WHEN {condition} THEN {sql_string(check)} END"
        for check, condition in failing.items()
    ]
    named = rows.rows.selectExpr("*", f"concat_ws(', ', {', '.join(names)}) AS {BY}")
    counts = rows.rows.selectExpr(*(f"count_if({test})" for test in failing.values())).head()
    return (
        replace(rows, rows=named.filter(f"{BY} = ''").drop(BY)),
        replace(rows, rows=named.filter(f"{BY} <> ''")),
        dict(zip(failing, counts or (), strict=True)),
    )
