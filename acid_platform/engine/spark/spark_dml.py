"""INSERT, UPDATE, DELETE and MERGE as frames of rows, each with one scan and one Spark job (P20).

MERGE matches the source with the table once. If rows may be inserted, the source is materialised
first, since it is read twice: to find its matches, and to join them to it, so that the rows without
one are known. A volatile source could otherwise both change a row and insert it. So it is if rows
of the table may be changed that no row of the source matches. The tasks that write see two source
rows for one row side by side, and count what became of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.interface import Condition, Where
from acid_platform.engine.merge_clauses import (
    MergeAction,
    MergeClause,
    MergeCounts,
    SourceKeys,
    expressions_of,
    inserted_values,
    names_of,
    targets_of,
    wanted_assignments,
)
from acid_platform.engine.spark.failures import is_connect, raise_as_ours
from acid_platform.engine.spark.few_calls import expression, selected, types_of
from acid_platform.engine.spark.query import run_query
from acid_platform.engine.spark.row_keys import BUCKET, KEYS, ROW_ID, ROW_ID_STRUCT, WRITE_ID
from acid_platform.engine.spark.scan import scan_rows
from acid_platform.engine.spark.spark_types import (
    cast_text,
    marked_columns,
    marked_type,
    require_assignable,
    type_text,
    with_limited_texts,
)
from acid_platform.engine.spark.write import (
    BITS,
    BUCKET_OF_ROW,
    StatementRows,
    arranged,
    place_by_hash,
    with_bucket,
    write_statement,
)
from acid_platform.errors import SourceRowsAmbiguous
from acid_platform.layout.acid_keys import ROW_ID_COLUMN, Bucket
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column as TableColumn
from acid_platform.layout.types import HiveType
from acid_platform.predicates.analysis import columns_of, refuse_blanks
from acid_platform.scan.scans import Scan
from acid_platform.values.fitting import source_rows_ambiguous
from acid_platform.write.publishing import WriteTarget, WrittenDirectory
from acid_platform.write.task_files import DELETES, INSERTS, RowKind, files_needed


def insert_rows(frame: DataFrame, target: WriteTarget, few: bool) -> StatementRows:
    """The rows to insert; `frame` has the table's columns. Each row is in its bucket's task.

    Unless they are `few`, the rows of a partition come together: otherwise each task would write a
    file for each partition. Spark joins small groups and divides large ones.
    """
    if target.buckets:
        frame = place_by_hash(frame, target.buckets, target.columns)
    elif target.partition_columns and target.distributed and not few:
        columns_of_partitions = [F.col(quoted(name)) for name in target.partition_names]
        frame = frame.hint("rebalance", *columns_of_partitions)
    values = [quoted(column.name) for column in target.columns]
    return replace(arranged(frame, target, RowKind.INSERT, values), few=few)


def matched_rows(
    spark: SparkSession, scan: Scan, where: Where, names: Sequence[str] | None = None
) -> DataFrame:
    """The rows that `where` accepts, with their KEYS and its values; each once, whatever its
    subqueries join."""
    if not isinstance(where, Condition):
        return scan_rows(spark, scan, names, where)
    rows = scan_rows(spark, scan, None).selectExpr("*", ROW_ID_STRUCT)
    matched = run_query(spark, f"SELECT *{where.text}", where.sources, {where.target: rows})
    return matched.drop(ROW_ID_COLUMN)


def rows_to_delete(
    spark: SparkSession, scan: Scan, target: WriteTarget, where: Where
) -> StatementRows:
    """The key of each matching row, in the task of the row's bucket.

    Only the columns that `where` reads are decoded. Raises InvalidExpression, UnknownColumn.
    """
    matched = matched_rows(spark, scan, where, names=[])
    keys = matched if target.partition_names else selected(matched, KEYS)
    return arranged(keys, target, RowKind.DELETE, writers=writers(scan))


def rows_to_update(
    spark: SparkSession,
    scan: Scan,
    target: WriteTarget,
    assignments: Mapping[str, str],
    where: Where,
) -> StatementRows:
    """The key and the new values of each matching row, from one scan.

    Raises PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression.
    """
    matched = matched_rows(spark, scan, where)
    for text in assignments.values():
        refuse_blanks(text, (*scan.columns, *scan.partition_columns))
    checked = wanted_assignments(assignments, scan, target.buckets, target.table)
    values = computed(matched, checked, scan.columns, target.table)
    names = [quoted(column.name) for column in scan.columns]
    # A selection of its own: later ones use a value several times, and it is computed once.
    placed = selected(
        matched,
        [
            *map(quoted, target.partition_names),
            *KEYS,
            *(
                f"{values.get(column.name, name)} AS {name}"
                for column, name in zip(scan.columns, names, strict=True)
            ),
        ],
    )
    placed = with_limited_texts(placed, scan.columns, target.table)
    return arranged(placed, target, RowKind.UPDATE, names, writers(scan))


def computed(
    frame: DataFrame,
    texts: Mapping[str, str],
    columns: Sequence[TableColumn],
    table: str,
    row: str = "",
) -> dict[str, str]:
    """SQL expressions over `frame` as values of the columns that they are given for, as SQL.

    A column of which only fields are given keeps its others; if it is NULL, these become NULL.
    `row`: what stands before the names of the row's old values. Raises WrongType, UnknownColumn,
    InvalidExpression.
    """
    targets = targets_of(texts, columns, table)
    kinds = types_of(frame, [texts[target.value.name] for target in targets])
    values: dict[str, str] = {}
    fields: dict[TableColumn, dict[tuple[str, ...], str]] = {}
    for target, kind in zip(targets, kinds, strict=True):
        column = target.value
        text = texts[column.name]
        require_assignable(kind, column, table, text)
        value = cast_text(enclosed(text), kind, column.type)
        if target.fields:
            fields.setdefault(target.column, {})[target.fields] = value
        else:
            values[column.name] = value
    for column, inside in fields.items():
        values[column.name] = _with_fields(f"{row}{quoted(column.name)}", column.type, inside)
    return values


def _with_fields(old: str, kind: HiveType, values: Mapping[tuple[str, ...], str]) -> str:
    """SQL of a struct with other values of some fields, by the names down to them."""
    parts = []
    for name, child in kind.children:
        inside = {path[1:]: value for path, value in values.items() if path[0] == name}
        own = f"{old}.{quoted(name)}"
        if inside:
            own = inside[()] if () in inside else _with_fields(own, child, inside)
        parts.append(f"{sql_string(name)}, {own}")
    return f"named_struct({', '.join(parts)})"


def enclosed(text: str) -> str:
    """A SQL expression as a part of another; it may end with a comment."""
    return f"({text}\n)"


def writers(scan: Scan) -> int:
    """The number of writer tasks: the highest bucket number in the scanned files, plus one."""
    return scan.highest_bucket + 1


_SOURCE_ROW, _CLAUSE = "__sid", "__clause"
_MATCHED_ROW = "__matched_sid"
"""The number of the source row that a row of the table matched; NULL for one without a match."""


@dataclass(frozen=True, slots=True)
class SparkMerge:
    """A MERGE into one scan. Expressions call the two sides `alias` and `source_alias`."""

    spark: SparkSession
    scan: Scan
    target: WriteTarget
    on: str
    clauses: Sequence[MergeClause]
    alias: str
    source_alias: str

    def write(
        self, source: DataFrame, keys: SourceKeys | None = None
    ) -> tuple[list[WrittenDirectory], MergeCounts]:
        """Writes and publishes the events of the statement; returns its directories and counts.

        `keys` gets the bounds of the source's keys, if the source is stored.

        Raises SourceRowsAmbiguous, PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn,
        WrongType, InvalidExpression, and what write_statement raises.
        """
        own = (*self.scan.columns, *self.scan.partition_columns, *marked_columns(source))
        for text in expressions_of(self.on, self.clauses):
            refuse_blanks(text, own)
        inserts = [c for c in self.clauses if c.action is MergeAction.INSERT]
        alone = [c for c in self.clauses if c.by_source]
        matching = [c for c in self.clauses if c.rows == "MATCHED"]
        number_of_writers = writers(self.scan)
        rows, count, names = source, 0, source.columns
        if inserts:
            rows = selected(source, ["*", f"monotonically_increasing_id() AS {_SOURCE_ROW}"])
        if inserts or alone:
            rows, count = self._stored_once(rows, keys)
        if inserts:
            number_of_writers = self._writers(count)
            matched = self._changed(
                rows, "inner", matching, 0, [f"{_SOURCE_ROW} AS {_MATCHED_ROW}"]
            )
            changed = self._with_inserted(rows, names, matched, inserts, number_of_writers)
        else:
            changed = self._changed(rows, "inner", matching, 0)
            changed = changed.filter(f"{_CLAUSE} IS NOT NULL")
        if alone:
            no_source = [f"CAST(NULL AS bigint) AS {_SOURCE_ROW}"] if inserts else []
            others = self._changed(rows, "left_anti", alone, len(matching), no_source)
            changed = changed.unionByName(others.filter(f"{_CLAUSE} IS NOT NULL"))
        bits = self._bits([*matching, *alone], len(self.clauses))
        values = [quoted(column.name) for column in self.scan.columns]
        partition = [quoted(column.name) for column in self.scan.partition_columns]
        # Inserted rows have no key: the order of the source gives them their row ids.
        order = [_SOURCE_ROW] if inserts else []
        changed = selected(changed, [*partition, *KEYS, f"{bits} AS {BITS}", *values, *order])
        changed = with_limited_texts(
            changed, (*self.scan.columns, *self.scan.partition_columns), self.target.table
        )
        if inserts and self.target.buckets:
            changed = self._placed_by_hash(changed, self.target.buckets)
        rows_to_write = arranged(
            changed, self.target, RowKind.EACH, values, number_of_writers, order
        )
        try:
            written, received = write_statement(rows_to_write, self.target)
        except SourceRowsAmbiguous:
            self._require_one_source_row(changed)  # which counts the source rows
            raise
        return written, MergeCounts(received.updated, received.deleted, received.inserted)

    def _writers(self, source_rows: int) -> int:
        """The number of tasks that write, if rows are inserted."""
        if self.target.buckets:
            return self.target.buckets.count
        return max(writers(self.scan), files_needed(source_rows))

    def _stored_once(self, frame: DataFrame, keys: SourceKeys | None) -> tuple[DataFrame, int]:
        """The rows, computed once and kept on the executors, and their number."""
        with raise_as_ours():
            if is_connect(self.spark):
                stored = frame.localCheckpoint(True, StorageLevel.MEMORY_AND_DISK)
                return stored, stored.count()
            counted = Observation()
            names = names_of(keys.pairs, _ordered(frame)) if keys else []
            told = ["count(1) AS rows"]
            for number, name in enumerate(names):
                told += [f"{end}({quoted(name)}) AS {end}{number}" for end in ("min", "max")]
            frame = frame.observe(counted, *(expression(self.spark, text) for text in told))
            stored = frame.localCheckpoint(True, StorageLevel.MEMORY_AND_DISK)
            got = counted.get
            if keys is not None:
                keys.bound(
                    {
                        name.lower(): (got[f"min{number}"], got[f"max{number}"])
                        for number, name in enumerate(names)
                    }
                )
            return stored, int(got["rows"])

    def _changed(
        self,
        rows: DataFrame,
        join: str,
        clauses: Sequence[MergeClause],
        first: int,
        more: Sequence[str] = (),
    ) -> DataFrame:
        """For each pair, or each row of the table, that the join gives: the number of its clause,
        `more`, partition columns, KEYS, and the values of an updated row; those of others are NULL.

        The numbers of `clauses` are `first` and so on.
        """
        updates = any(clause.action is MergeAction.UPDATE for clause in clauses)
        names = None if updates else self._needed()
        target = scan_rows(self.spark, self.scan, names).alias(self.alias)
        with raise_as_ours():
            pairs = target.join(
                rows.alias(self.source_alias), expression(self.spark, self.on), join
            )
        row = f"{quoted(self.alias)}."
        updated: dict[int, Mapping[str, str]] = {}
        for number, clause in enumerate(clauses, first):
            if clause.action is MergeAction.UPDATE:
                texts = wanted_assignments(
                    clause.values or {}, self.scan, self.target.buckets, self.target.table
                )
                updated[number] = computed(pairs, texts, self.scan.columns, self.target.table, row)
        with raise_as_ours():
            # A selection of its own, so that a volatile condition decides once.
            pairs = selected(pairs, ["*", f"{self._number(pairs, clauses, first)} AS {_CLAUSE}"])
            own = [f"{row}{quoted(c.name)}" for c in self.scan.partition_columns]
            partition = [
                f"{value} AS {quoted(column.name)}"
                for value, column in zip(own, self.scan.partition_columns, strict=True)
            ]
            values = []
            for column in self.scan.columns:
                name = quoted(column.name)
                cases = {
                    n: changed.get(column.name, f"{row}{name}") for n, changed in updated.items()
                }
                values.append(f"{_chosen(cases, None, column)} AS {name}")
            return selected(pairs, [_CLAUSE, *more, *partition, *KEYS, *values])

    def _needed(self) -> list[str] | None:
        """The table's columns that ON and the conditions may read; None: all."""
        names: set[str] = set()
        for text in (self.on, *(c.condition for c in self.clauses if c.condition)):
            columns = columns_of(text)
            if columns is None:
                return None
            names |= columns
        return [column.name for column in self.scan.columns if column.name in names]

    def _number(self, frame: DataFrame, clauses: Sequence[MergeClause], first: int) -> str:
        """SQL of the number of the clause that applies to a row, NULL if none does.

        The numbers of `clauses` are `first` and so on. Raises UnknownColumn, InvalidExpression.
        """
        conditions = [clause.condition for clause in clauses if clause.condition is not None]
        types_of(frame, conditions)  # each is an expression of its own
        cases = " ".join(
            f"WHEN {_holds(clause)} THEN {number}" for number, clause in enumerate(clauses, first)
        )
        return f"CASE {cases} END" if cases else "CAST(NULL AS int)"

    def _with_inserted(
        self,
        rows: DataFrame,
        names: Sequence[str],
        matched: DataFrame,
        clauses: Sequence[MergeClause],
        number_of_writers: int,
    ) -> DataFrame:
        """`matched`, and the source rows without a match to which a clause applies.

        An inserted row has no key but a bucket property, for the task that writes it.
        """
        columns = (*self.scan.columns, *self.scan.partition_columns)
        texts = expressions_of(self.on, self.clauses)
        assigned = [
            inserted_values(
                clause, names, columns, self.target.table, texts, self.target.checks.defaults
            )
            for clause in clauses
        ]
        unmatched = rows.alias(self.source_alias)
        inserted = [
            computed(unmatched, assignment, columns, self.target.table) for assignment in assigned
        ]
        first = len(self.clauses)
        with raise_as_ours():
            number = self._number(unmatched, clauses, first)
            # Other names, so that expressions over the source mean its columns.
            renamed = {column.name: f"__m{i}" for i, column in enumerate(columns)}
            matches = selected(
                matched,
                [
                    f"{_CLAUSE} AS __matched_clause",
                    _MATCHED_ROW,
                    *KEYS,
                    *(f"{quoted(name)} AS {other}" for name, other in renamed.items()),
                ],
            )
            same = expression(self.spark, f"{_SOURCE_ROW} = {_MATCHED_ROW}")
            none = f"{_MATCHED_ROW} IS NULL"
            applied = f"CASE WHEN {none} THEN {number} ELSE __matched_clause END"
            joined = unmatched.join(matches, same, "left")
            joined = selected(joined, ["*", f"{applied} AS {_CLAUSE}"])
            joined = joined.filter(f"{_CLAUSE} IS NOT NULL")
            writer = f"CAST({_SOURCE_ROW} % {number_of_writers} AS int)"
            values = []
            for column in columns:
                cases = {number: row.get(column.name) for number, row in enumerate(inserted, first)}
                value = _chosen(cases, renamed[column.name], column)
                values.append(f"{value} AS {quoted(column.name)}")
            return selected(
                joined,
                [
                    _CLAUSE,
                    WRITE_ID,
                    f"CASE WHEN {none} THEN {_property(writer)} ELSE {BUCKET} END AS {BUCKET}",
                    ROW_ID,
                    *values,
                    _SOURCE_ROW,
                ],
            )

    def _placed_by_hash(self, changed: DataFrame, buckets: Bucketing) -> DataFrame:
        """The rows with bucket properties that place inserted ones by the hash of their values."""
        hashed = with_bucket(changed, buckets, self.scan.columns)
        own = f"CASE WHEN {WRITE_ID} IS NULL THEN {_property(BUCKET_OF_ROW)} ELSE {BUCKET} END"
        return selected(
            hashed,
            [
                f"{own} AS {BUCKET}" if name == BUCKET else quoted(name)
                for name in hashed.columns
                if name != BUCKET_OF_ROW
            ],
        )

    def _bits(self, changing: Sequence[MergeClause], first_insert: int) -> str:
        updates = [str(i) for i, c in enumerate(changing) if c.action is MergeAction.UPDATE]
        both = f"WHEN {_CLAUSE} IN ({', '.join(updates)}) THEN {DELETES | INSERTS}"
        return (
            f"CASE WHEN {_CLAUSE} >= {first_insert} THEN {INSERTS} {both if updates else ''}"
            f" ELSE {DELETES} END"
        )

    def _require_one_source_row(self, changed: DataFrame) -> None:
        """Raises SourceRowsAmbiguous; several that only delete one row are no fault."""
        matched = changed.filter(f"{WRITE_ID} IS NOT NULL")
        names = [column.name for column in self.scan.partition_columns]
        groups = matched.groupBy(*map(quoted, names), *KEYS)
        counts = groups.agg(F.count("*").alias("count"), F.max(BITS).alias("most"))
        ambiguous = counts.filter(f"count > 1 AND most > {DELETES}").head()
        if ambiguous is not None:
            write_id, bucket, row_id = (ambiguous[key] for key in KEYS)
            raise source_rows_ambiguous(
                self.target.table, ambiguous["count"], (write_id, bucket, row_id), self.on
            )


def _ordered(frame: DataFrame) -> list[str]:
    """The columns whose lowest and highest values are what Python's order says; a CHAR has blanks
    that don't count."""
    kinds = (T.IntegralType, T.DecimalType, T.DateType)
    names = Counter(field.name.lower() for field in frame.schema)
    return [
        field.name
        for field in frame.schema
        if (isinstance(field.dataType, kinds) or field.dataType == T.StringType())
        and marked_type(field) is None
        and names[field.name.lower()] == 1
    ]


def _holds(clause: MergeClause) -> str:
    return "true" if clause.condition is None else f"coalesce({enclosed(clause.condition)}, false)"


def _chosen(cases: Mapping[int, str | None], otherwise: str | None, column: TableColumn) -> str:
    """SQL of the value by the number of the row's clause; None is NULL."""
    nothing = f"CAST(NULL AS {type_text(column.type)})"
    if not cases:
        return otherwise or nothing
    whens = " ".join(f"WHEN {key} THEN {value or nothing}" for key, value in cases.items())
    return f"CASE {_CLAUSE} {whens} ELSE {otherwise or nothing} END"


def _property(bucket: str) -> str:
    """SQL of the bucket property of statement 0 for a bucket number."""
    return f"({Bucket(0, 0).property} | shiftleft({bucket}, 16))"
