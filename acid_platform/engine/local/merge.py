"""MERGE: source rows are matched with the table once, then the events are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.interface import Result
from acid_platform.engine.local import engine
from acid_platform.engine.local.computation import (
    POSITION,
    compute,
    condition_sql,
    join_sql,
    numbered,
    without_zones,
)
from acid_platform.engine.local.dml import keys_of, parts_of, require_checked, rows_at
from acid_platform.engine.local.event_files import (
    EventFiles,
    PlacedDeletes,
    PlacedRows,
    buckets_of,
    publish_events,
    require_writable,
)
from acid_platform.engine.local.found_rows import AssignedValues, columns_read, stream
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import identifier, may_fail
from acid_platform.engine.merge_clauses import (
    MergeAction,
    MergeClause,
    MergeCounts,
    expressions_of,
    inserted_values,
    wanted_assignments,
)
from acid_platform.errors import InvalidDefinition, InvalidExpression, NeedsSpark, WrongType
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.types import Column
from acid_platform.scan.result_columns import PLACE
from acid_platform.scan.scans import ENTITY, ArrowScan, Scan
from acid_platform.values.arrow_types import (
    arrow_type,
    declared_columns,
    from_numpy,
    values_of,
)
from acid_platform.values.fitting import source_rows_ambiguous
from acid_platform.values.local_rows import local_table
from acid_platform.values.partition_texts import places_of
from acid_platform.values.row_streams import table_of_parts
from acid_platform.values.rows import Rows, column_names
from acid_platform.values.stored_values import assigned, stored_rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

_MATCHED = "acid_matched"
"""The name in DuckDB of the places of rows that a source row matches."""
_CLAUSE = "__clause"
"""The column with the number of the clause that applies to a row."""


class LocalMerge:
    """A MERGE into one scan. `aliases`: what expressions call the table and the source.

    Making it reads the source, which lies in a private file if it is large. Raises WrongType,
    UnknownColumn, InvalidDefinition, CorruptFile, TxnAborted, NeedsSpark.
    """

    def __init__(
        self,
        scan: Scan,
        target: WriteTarget,
        source: Rows,
        on: str,
        clauses: Sequence[MergeClause],
        aliases: tuple[str, str],
    ) -> None:
        self.alias, self.source_alias = aliases
        if self.alias.lower() == self.source_alias.lower():
            raise NeedsSpark("MERGE with one name for both sides")
        require_writable(target)
        self.scan, self.target, self.on, self.clauses = scan, target, on, clauses
        self.own = (*scan.columns, *scan.partition_columns)
        self.source, self.source_columns = self._source(source)
        self.large = len(self.source) > _FEW
        self.both = NameScope.of({self.alias: self.own, self.source_alias: self.source_columns})
        self.alone = NameScope.of({self.alias: self.own})

    def run(self) -> tuple[list[WrittenDirectory], MergeCounts]:
        """Writes and publishes the events; returns the counts of changed rows.

        Raises SourceRowsAmbiguous, PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn,
        WrongType, InvalidExpression, PublicationFailed, CorruptFile, TxnAborted, NeedsSpark.
        """
        matching = [c for c in self.clauses if c.rows == "MATCHED"]
        alone = [c for c in self.clauses if c.by_source]
        inserts = [c for c in self.clauses if c.action is MergeAction.INSERT]
        changing = [*matching, *alone]
        updates = [self._update(clause) for clause in changing]
        pairs = self._pairs(matching)
        without_match = np.ones(len(self.source), bool)
        for numbers in pairs.column("s").chunks:
            without_match[values_of(numbers)] = False
        if alone:
            pairs = self._with_unmatched(pairs, alone, len(matching))
        changed = table_of_parts(self._once(pairs, changing))
        del pairs
        counts = dict.fromkeys(MergeAction, 0)
        for number, clause in enumerate(changing):
            rows = pc.sum(pc.equal(changed.column(_CLAUSE), number)).as_py()
            counts[clause.action] += rows or 0
        inserted = self._inserted(without_match, inserts)
        written, counts[MergeAction.INSERT] = self._publish(changed, changing, updates, inserted)
        return written, MergeCounts(*(counts[action] for action in MergeAction))

    # --- the two sides -------------------------------------------------------------------------

    def _source(self, rows: Rows) -> tuple[pa.Table, tuple[Column, ...]]:
        """The source, evaluated once, and its columns."""
        if isinstance(rows, Result):
            column_names(rows)
            try:
                columns = rows.declared()
            except InvalidDefinition as error:
                raise NeedsSpark(str(error)) from error
            return table_of_parts(self._declared(rows, columns)), columns
        table = local_table(rows, self.target.all_columns, self.target.table, more=True)
        own = {column.name: column for column in self.target.all_columns}
        return table, tuple(
            # What a CHAR of the table is given is one: its trailing blanks don't count.
            own[column.name]
            if column.name in own and own[column.name].type.kind == "char"
            else column
            for column in declared_columns(table.schema)
        )

    def _declared(self, rows: Result, columns: Sequence[Column]) -> Iterator[pa.Table]:
        """The rows of a result with these names and types, in one or more parts."""
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
        yield schema.empty_table()
        for batch in rows.batches():
            engine.check()
            values = [
                column.cast(kind) for column, kind in zip(batch.columns, schema.types, strict=True)
            ]
            yield pa.Table.from_arrays(values, schema=schema)

    def _read(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The table's columns that the expressions may read."""
        alias = self.source_alias.lower()
        others = [(alias, column.name.lower()) for column in self.source_columns]
        return columns_read(texts, self.own, others)

    def _pairs(self, clauses: Sequence[MergeClause]) -> pa.Table:
        """PLACE of the table's row, `s` (of the source's row), and the number of the first clause
        that applies, or NULL, for each pair that ON joins, in the order of the table's rows."""
        alias, source = identifier(self.alias), identifier(self.source_alias)
        on = join_sql(self.on, self.both)
        sql = (
            f"SELECT {alias}.{PLACE.name}, {source}.{POSITION} AS s,"
            f" {_first_of(clauses, self.both)} AS {_CLAUSE} FROM {alias} JOIN {source}"
            f" ON {on} ORDER BY {PLACE.name}, s"
        )
        texts = [self.on, *(c.condition for c in clauses if c.condition is not None)]
        rows = stream(self.scan, self._read(texts), keep=not self.large)
        others = without_zones(numbered(self.source)).to_reader()
        try:
            sides = {self.alias: rows, self.source_alias: others}
            return compute(sql, sides, many=True, apart=self.large)
        except (WrongType, InvalidExpression) as error:
            if may_fail(on):  # perhaps for a pair that Spark skips
                raise NeedsSpark(f"ON {self.on}, which may fail: {error}") from error
            raise

    def _with_unmatched(
        self, pairs: pa.Table, clauses: Sequence[MergeClause], first: int
    ) -> pa.Table:
        """The pairs that a clause applies to, and as such the table's rows that no source row
        matches; their `s` is NULL, and the numbers of their clauses are `first` and so on."""
        alias = identifier(self.alias)
        sql = (
            f"FROM (SELECT {PLACE.name}, NULL::BIGINT AS s,"
            f" {_first_of(clauses, self.alone, first)} AS {_CLAUSE}"
            f" FROM {alias} ANTI JOIN {_MATCHED} USING ({PLACE.name})"
            f" UNION ALL FROM {_MATCHED}) WHERE {_CLAUSE} IS NOT NULL ORDER BY {PLACE.name}, s"
        )
        texts = [c.condition for c in clauses if c.condition is not None]
        rows = stream(self.scan, self._read(texts), keep=not self.large)
        sides = {self.alias: rows, _MATCHED: pairs}
        return compute(sql, sides, many=True, apart=self.large)

    def _old(
        self,
        places: np.ndarray,
        clauses: Sequence[MergeClause],
        updates: Sequence[AssignedValues | None],
    ) -> Iterator[pa.Table]:
        """The rows with these places, which ascend, with their row ids and ENTITY, part by part. Of
        their columns, those that the clauses read or leave as they are.
        """
        assigned = [values for values in updates if values is not None]
        replaced = frozenset[str]()
        if assigned:
            replaced = frozenset.intersection(*(values.replaced for values in assigned))
        texts = [text for c in clauses for text in (c.values or {}).values()]
        read = self._read(texts)
        names = [
            column.name
            for column in self.own
            if column.name in read
            or (assigned and column in self.scan.columns and column.name not in replaced)
        ]
        return parts_of(self.scan, names, rows_at(self.scan, places, names, not self.large))

    def _once(self, pairs: pa.Table, clauses: Sequence[MergeClause]) -> Iterator[pa.Table]:
        """The pairs that a clause applies to, of each row of the table the first, in parts; several
        source rows may delete a row.

        Raises SourceRowsAmbiguous if several change a row, and one of them updates it.
        """
        updates = [i for i, c in enumerate(clauses) if c.action is MergeAction.UPDATE]
        rest = pairs.slice(0, 0)
        yield rest
        for batch in (*pairs.to_batches(), None):
            part, end = rest, len(rest)
            if batch is not None:
                part = pa.concat_tables([rest, pa.Table.from_batches([batch])])
                part = part.filter(pc.is_valid(part.column(_CLAUSE)))
                end = len(part)
            places = values_of(part.column(PLACE.name))
            if batch is not None and end:  # the next batch may have more of the last row
                end = int(np.searchsorted(places, places[-1]))
            rest, part, places = part.slice(end), part.slice(0, end), places[:end]
            first = np.ones(end, bool)
            first[1:] = places[1:] != places[:-1]
            if not first.all():
                self._require_no_update(places, values_of(part.column(_CLAUSE)), updates)
                part = part.filter(from_numpy(first))
            yield part

    def _require_no_update(
        self, places: np.ndarray, clauses: np.ndarray, updates: Sequence[int]
    ) -> None:
        """Raises SourceRowsAmbiguous if a clause updates a row of which there are several pairs."""
        rows, row, times = np.unique(places, return_inverse=True, return_counts=True)
        is_updated = np.bincount(row, np.isin(clauses, updates)) > 0
        ambiguous = np.flatnonzero((times > 1) & is_updated)
        if len(ambiguous):
            (old,) = parts_of(self.scan, (), rows_at(self.scan, rows[ambiguous[:1]], ()))
            key = old.column(ROW_ID_COLUMN)[0].as_py()
            raise source_rows_ambiguous(
                self.target.table, int(times[ambiguous[0]]), tuple(key.values()), self.on
            )

    # --- new values ----------------------------------------------------------------------------

    def _update(self, clause: MergeClause) -> AssignedValues | None:
        """What the clause sets; None if it deletes."""
        if clause.action is not MergeAction.UPDATE:
            return None
        assignments = wanted_assignments(
            clause.values or {}, self.scan, self.target.buckets, self.target.table
        )
        scope = self.alone if clause.by_source else self.both
        return AssignedValues.of(assignments, self.scan.columns, scope, self.target.table)

    def _updated(
        self,
        old: pa.Table,
        changed: pa.Table,
        clauses: Sequence[MergeClause],
        updates: Sequence[AssignedValues | None],
    ) -> tuple[pa.Table, np.ndarray]:
        """The new values of updated rows, and the number of each in `old`.

        `changed`: what becomes of each row of `old`.
        """
        kind = ArrowScan(self.scan, tuple(column.name for column in self.scan.columns)).schema
        parts, positions = [kind.empty_table()], [np.zeros(0, np.int64)]
        numbers, source_rows = (values_of(changed.column(name)) for name in (_CLAUSE, "s"))
        for number, (clause, values) in enumerate(zip(clauses, updates, strict=True)):
            mine = np.flatnonzero(numbers == number)
            if values is None or not len(mine):
                continue
            rows = old.take(from_numpy(mine)).drop_columns([ROW_ID_COLUMN, ENTITY.name])
            sides = {self.alias: rows}
            if not clause.by_source:
                names = values.taken_of(self.source_alias, self.source.column_names)
                sides[self.source_alias] = taken(self.source.select(names), source_rows[mine])
            parts.append(values.put_into(rows, sides).select(kind.names))
            positions.append(mine)
        return pa.concat_tables(parts), np.concatenate(positions)

    def _inserted(
        self, without_match: np.ndarray, clauses: Sequence[MergeClause]
    ) -> Iterator[pa.Table]:
        """The rows of source rows without a match, with all columns; part by part, as there may be
        many."""
        source, given = self.source, False
        most = max(1, min(len(source), len(source) * _PART_BYTES // (source.nbytes or 1)))
        for start in range(0, len(source) if clauses else 0, most):
            engine.check()
            rest = np.flatnonzero(without_match[start : start + most])
            if len(rest):
                part = source.slice(start, most).take(from_numpy(rest))
                given = True
                yield self._new_rows(part, clauses)
        if clauses and not given:
            self._new_rows(source.slice(0, 0), clauses)  # a type that does not fit fails here

    def _new_rows(self, unmatched: pa.Table, clauses: Sequence[MergeClause]) -> pa.Table:
        """What the clauses insert of rows of the source, with all columns, in their order."""
        fields = [(column.name, arrow_type(column.type)) for column in self.own]
        parts, positions = [pa.schema(fields).empty_table()], [np.zeros(0, np.int64)]
        scope = NameScope.of({self.source_alias: self.source_columns})
        numbers = self._clauses_of(unmatched, clauses, scope)
        for index, clause in enumerate(clauses):
            mine = np.flatnonzero(numbers == index)
            values = inserted_values(
                clause,
                self.source.column_names,
                self.own,
                self.target.table,
                expressions_of(self.on, self.clauses),
                self.target.checks.defaults,
            )
            source = unmatched.take(from_numpy(mine))
            copied = self._copied(source) if clause.values is None else {}
            rest_of = {name: text for name, text in values.items() if name not in copied}
            fresh = pa.table(
                {
                    name: copied[name] if name in copied else pa.nulls(len(mine), kind)
                    for name, kind in fields
                }
            )
            computed = AssignedValues.of(
                rest_of, self.own, scope, self.target.table, once=bool(len(unmatched))
            )
            parts.append(computed.put_into(fresh, {self.source_alias: source}))
            positions.append(mine)
        rows = stored_rows(
            pa.concat_tables(parts),
            self.own,
            self.target.table,
            in_files=self.target.format.limited(self.scan.columns),
        )
        return rows.take(from_numpy(np.argsort(np.concatenate(positions), kind="stable")))

    def _clauses_of(
        self, unmatched: pa.Table, clauses: Sequence[MergeClause], scope: NameScope
    ) -> np.ndarray:
        """The number of the clause that inserts each row of the source, int64 (n,); -1 if none."""
        if len(clauses) == 1 and clauses[0].condition is None:
            return np.zeros(len(unmatched), np.int64)
        name, number = identifier(self.source_alias), _first_of(clauses, scope)
        numbers = compute(
            f"SELECT {POSITION}, {number} AS {_CLAUSE} FROM {name} ORDER BY {POSITION}",
            {self.source_alias: numbered(unmatched)},
        ).column(_CLAUSE)
        return values_of(pc.fill_null(numbers, -1)).astype(np.int64, copy=False)

    def _copied(self, source: pa.Table) -> dict[str, pa.ChunkedArray]:
        """The columns of source rows that have the type of the table's column of their name."""
        own = {column.name: column for column in self.own}
        copied = {}
        for name, declared in zip(source.column_names, self.source_columns, strict=True):
            column = own.get(name.lower())
            if column is None or (declared.type.has_char and declared.type != column.type):
                continue
            with suppress(NeedsSpark):  # an expression may still convert it
                copied[name.lower()] = assigned(source.column(name), column, self.target.table)
        return copied

    # --- the events ----------------------------------------------------------------------------

    def _publish(
        self,
        changed: pa.Table,
        clauses: Sequence[MergeClause],
        updates: Sequence[AssignedValues | None],
        inserted: Iterator[pa.Table],
    ) -> tuple[list[WrittenDirectory], int]:
        """What was published, and how many rows were inserted."""
        target, columns = self.target, self.scan.columns
        names = [column.name for column in columns]
        lengths: list[int] = []

        def write(files: EventFiles) -> None:
            with PlacedDeletes(files) as deleted, PlacedRows(files) as placed:
                for rows in inserted:
                    fresh = require_checked(rows.select(names), columns, target.checks)
                    places = places_of(rows, target.partition_columns)
                    placed.add(fresh, places, buckets_of(fresh, target))
                    lengths.append(len(fresh))
                found, begin = values_of(changed.column(PLACE.name)), 0
                for old in self._old(found, clauses, updates):
                    keys, mine = keys_of(old, self.scan), changed.slice(begin, len(old))
                    begin += len(old)
                    if lengths and target.buckets and keys.numbers.max() >= target.buckets.count:
                        raise NeedsSpark("rows in more buckets than the table declares")
                    values, updated = self._updated(old, mine, clauses, updates)
                    are_updated = np.zeros(len(keys), bool)
                    are_updated[updated] = True
                    deleted.add_keys(keys, are_updated)
                    limited = target.format.limited(columns)
                    values = stored_rows(values, columns, target.table, in_files=limited)
                    require_checked(values, columns, target.checks)
                    of_old = keys.take(updated)
                    order = of_old.order()
                    of_old, values = of_old.take(order), values.take(from_numpy(order))
                    if len(of_old):
                        buckets = of_old.numbers if target.buckets else None
                        placed.add(values, of_old.places, buckets)
                deleted.write()
                placed.write()

        return publish_events(target, write), sum(lengths)


def taken(table: pa.Table, numbers: np.ndarray) -> pa.Table:
    """The rows with these numbers, in this order. Copies only these, while Arrow would first put
    the chunks of each column together."""
    batches = table.to_batches()
    if len(batches) < 2:
        return table.take(from_numpy(numbers))
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    ends = np.cumsum([len(batch) for batch in batches])
    bounds = [0, *np.searchsorted(ascending, ends).tolist()]
    parts = [
        batch.take(from_numpy(ascending[start:end] - (last - len(batch))))
        for batch, last, (start, end) in zip(batches, ends, pairwise(bounds), strict=True)
        if start < end
    ]
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches(parts, table.schema).take(from_numpy(back))


_FEW = 1 << 20
"""A MERGE of more rows needs the memory itself: it keeps no columns for the next statement, and its
join gives back what it took before the files are written."""
_PART_BYTES = 1 << 25
"""About how many bytes of the source are inserted at a time."""


def _first_of(clauses: Sequence[MergeClause], scope: NameScope, first: int = 0) -> str:
    """SQL of the number of the first clause whose condition is true; NULL if there is none.

    The numbers of the clauses are `first` and so on.
    """
    cases = "".join(
        f" WHEN {'true' if c.condition is None else condition_sql(c.condition, scope)} THEN {i}"
        for i, c in enumerate(clauses, first)
    )
    return f"CAST(CASE{cases} END AS INTEGER)" if cases else "CAST(NULL AS INTEGER)"
