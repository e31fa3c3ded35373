"""MERGE: source rows are matched with the table once, then the events are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

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
from acid_platform.engine.local.dml import counted, keys_of, require_checked, rows_at, table_of
from acid_platform.engine.local.event_files import (
    EventFiles,
    Keys,
    publish_events,
    require_writable,
)
from acid_platform.engine.local.found_rows import AssignedValues, columns_read, stream
from acid_platform.engine.local.placed_rows import PlacedRows, buckets_of
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import identifier
from acid_platform.engine.local.translation.expressions import may_fail
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
from acid_platform.scan.decode import PLACE
from acid_platform.scan.scans import ENTITY, ArrowScan, Scan
from acid_platform.values.arrow_types import (
    arrow_type,
    declared_columns,
    filled,
    from_numpy,
    values_of,
)
from acid_platform.values.fitting import source_rows_ambiguous
from acid_platform.values.local_rows import local_table
from acid_platform.values.partition_texts import places_of
from acid_platform.values.rows import Rows, column_names
from acid_platform.values.stored_values import assigned, stored_rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory
from acid_platform.write.task_files import files_needed

_MATCHED = "acid_matched"
"""The name in DuckDB of the places of rows that a source row matches."""
_CLAUSE = "__clause"
"""The column with the number of the clause that applies to a row."""


class LocalMerge:
    """A MERGE into one scan. `aliases`: what expressions call the table and the source.

    Making it reads the source, at most the target's `most_bytes`. Raises WrongType, UnknownColumn,
    InvalidDefinition, CorruptFile, TxnAborted, NeedsSpark.
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
        changed = pairs.filter(pc.is_valid(pairs.column(_CLAUSE)))
        if alone:
            changed = pa.concat_tables([changed, self._unmatched(pairs, alone, len(matching))])
        old, changed = self._old(changed, changing, updates)
        updated = self._updated(old, changed, changing, updates)
        changed = self._once(old, changed, changing)
        counts = dict.fromkeys(MergeAction, 0)
        for number, clause in enumerate(changing):
            rows = pc.sum(pc.equal(changed.column(_CLAUSE), number)).as_py()
            counts[clause.action] += rows or 0
        inserted = self._inserted(pairs, inserts)
        written, counts[MergeAction.INSERT] = self._publish(old, changed, updated, inserted)
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
            reader = rows.batches()
            table = pa.Table.from_batches(
                list(counted(reader, self.target.most_bytes)), reader.schema
            )
            for index, column in enumerate(columns):
                values = table.column(index).cast(arrow_type(column.type))
                table = table.set_column(index, column.name, values)
            return table, columns
        table = local_table(rows, self.target.all_columns, self.target.table, more=True)
        own = {column.name: column for column in self.target.all_columns}
        return table, tuple(
            # What a CHAR of the table is given is one: its trailing blanks don't count.
            own[column.name]
            if column.name in own and own[column.name].type.kind == "char"
            else column
            for column in declared_columns(table.schema)
        )

    def _read(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The table's columns that the expressions may read."""
        alias = self.source_alias.lower()
        others = [(alias, column.name.lower()) for column in self.source_columns]
        return columns_read(texts, self.own, others)

    def _pairs(self, clauses: Sequence[MergeClause]) -> pa.Table:
        """PLACE of the table's row, `s` (of the source's row), and the number of the first clause
        that applies, or NULL, for each pair that ON joins."""
        alias, source = identifier(self.alias), identifier(self.source_alias)
        on = join_sql(self.on, self.both)
        sql = (
            f"SELECT {alias}.{PLACE.name}, {source}.{POSITION} AS s,"
            f" {_first_of(clauses, self.both)} AS {_CLAUSE} FROM {alias} JOIN {source}"
            f" ON {on}"
        )
        texts = [self.on, *(c.condition for c in clauses if c.condition is not None)]
        rows = stream(self.scan, self._read(texts))
        others = without_zones(numbered(self.source)).to_reader()
        try:
            return compute(sql, {self.alias: rows, self.source_alias: others})
        except (WrongType, InvalidExpression) as error:
            if may_fail(on):  # perhaps for a pair that Spark skips
                raise NeedsSpark(f"ON {self.on}, which may fail: {error}") from error
            raise

    def _unmatched(self, pairs: pa.Table, clauses: Sequence[MergeClause], first: int) -> pa.Table:
        """As `_pairs` of the table's rows that no source row matches and a clause applies to; `s`
        is NULL, and the numbers of the clauses are `first` and so on."""
        alias = identifier(self.alias)
        sql = (
            f"SELECT {PLACE.name}, {_first_of(clauses, self.alone, first)} AS {_CLAUSE}"
            f" FROM {alias} ANTI JOIN {_MATCHED} USING ({PLACE.name})"
        )
        texts = [c.condition for c in clauses if c.condition is not None]
        rows, matched = stream(self.scan, self._read(texts)), pairs.select([PLACE.name])
        numbers = compute(sql, {self.alias: rows, _MATCHED: matched.to_reader()})
        nothing = pa.nulls(numbers.num_rows, pairs.schema.field("s").type)
        columns = [numbers.column(0), nothing, numbers.column(_CLAUSE)]
        unmatched = pa.Table.from_arrays(columns, schema=pairs.schema)
        return unmatched.filter(pc.is_valid(unmatched.column(_CLAUSE)))

    def _old(
        self,
        changed: pa.Table,
        clauses: Sequence[MergeClause],
        updates: Sequence[AssignedValues | None],
    ) -> tuple[pa.Table, pa.Table]:
        """The changed rows with their row ids and ENTITY, and `changed` with the number of each
        among them as POSITION. Of their columns, those that the clauses read or leave as they are.
        """
        places, numbers = np.unique(values_of(changed.column(PLACE.name)), return_inverse=True)
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
        # What a MERGE reads is held in memory; compressed files are much smaller than their rows.
        most = 4 * self.target.most_bytes
        old = table_of(self.scan, names, counted(rows_at(self.scan, places, names), most))
        positions = from_numpy(numbers.astype(np.int64))
        return old, changed.drop_columns([PLACE.name]).append_column(POSITION, positions)

    def _once(self, old: pa.Table, changed: pa.Table, clauses: Sequence[MergeClause]) -> pa.Table:
        """Each changed row once, though several source rows may delete it.

        Raises SourceRowsAmbiguous if several change a row, and one of them updates it.
        """
        places, first, inverse, times = np.unique(
            values_of(changed.column(POSITION)),
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        if (times == 1).all():
            return changed
        updates = [i for i, c in enumerate(clauses) if c.action is MergeAction.UPDATE]
        is_updated = np.zeros(len(places), bool)
        is_updated[inverse[np.isin(values_of(changed.column(_CLAUSE)), updates)]] = True
        ambiguous = np.flatnonzero((times > 1) & is_updated)
        if len(ambiguous):
            key = old.column(ROW_ID_COLUMN)[int(places[ambiguous[0]])].as_py()
            raise source_rows_ambiguous(
                self.target.table, int(times[ambiguous[0]]), tuple(key.values()), self.on
            )
        return changed.take(from_numpy(np.sort(first)))

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
        """The new values of updated rows, and the place of each in the table."""
        kind = ArrowScan(self.scan, tuple(column.name for column in self.scan.columns)).schema
        parts, positions = [kind.empty_table()], [np.zeros(0, np.int64)]
        for number, (clause, values) in enumerate(zip(clauses, updates, strict=True)):
            if values is None:
                continue
            mine = changed.filter(pc.equal(changed.column(_CLAUSE), number))
            rows = old.take(mine.column(POSITION)).drop_columns([ROW_ID_COLUMN, ENTITY.name])
            sides = {self.alias: rows}
            if not clause.by_source:
                names = values.taken_of(self.source_alias, self.source.column_names)
                sides[self.source_alias] = self.source.select(names).take(mine.column("s"))
            parts.append(values.put_into(rows, sides).select(kind.names))
            positions.append(values_of(mine.column(POSITION)))
        return pa.concat_tables(parts), np.concatenate(positions)

    def _inserted(
        self, pairs: pa.Table, clauses: Sequence[MergeClause]
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """The rows of source rows without a match, with all columns, and their places there; part
        by part, as there may be many."""
        source = self.source
        matched = values_of(pairs.column("s"))
        alone = np.ones(len(source), bool)
        alone[matched] = False
        most = max(1, min(len(source), len(source) * _PART_BYTES // (source.nbytes or 1)))
        for start in range(0, len(source) if clauses else 0, most):
            engine.check()
            rest = np.flatnonzero(alone[start : start + most])
            if len(rest):
                part = source.slice(start, most).take(from_numpy(rest))
                rows, places = self._new_rows(part, clauses)
                yield rows, start + rest[places]

    def _new_rows(
        self, unmatched: pa.Table, clauses: Sequence[MergeClause]
    ) -> tuple[pa.Table, np.ndarray]:
        """What the clauses insert of rows of the source, with all columns, and which they are."""
        fields = [(column.name, arrow_type(column.type)) for column in self.own]
        parts, positions = [pa.schema(fields).empty_table()], [np.zeros(0, np.int64)]
        scope = NameScope.of({self.source_alias: self.source_columns})
        number = _first_of(clauses, scope)
        name = identifier(self.source_alias)
        numbers = compute(
            f"SELECT {POSITION}, {number} AS {_CLAUSE} FROM {name} ORDER BY {POSITION}",
            {self.source_alias: numbered(unmatched)},
        ).column(_CLAUSE)
        for index, clause in enumerate(clauses):
            mine = np.flatnonzero(filled(pc.equal(numbers, index), False))
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
            computed = AssignedValues.of(rest_of, self.own, scope, self.target.table)
            parts.append(computed.put_into(fresh, {self.source_alias: source}))
            positions.append(mine)
        rows = stored_rows(
            pa.concat_tables(parts), self.own, self.target.table, in_files=self.scan.columns
        )
        places = np.concatenate(positions)
        order = np.argsort(places, kind="stable")
        return rows.take(from_numpy(order)), places[order]

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
        old: pa.Table,
        changed: pa.Table,
        updated: tuple[pa.Table, np.ndarray],
        inserted: Iterator[tuple[pa.Table, np.ndarray]],
    ) -> tuple[list[WrittenDirectory], int]:
        """What was published, and how many rows were inserted."""
        keys = keys_of(old, self.scan)
        changed_rows = values_of(changed.column(POSITION))
        deletes = keys.take(changed_rows)
        values, positions = updated
        are_updated = np.isin(changed_rows, positions)
        values = stored_rows(
            values, self.scan.columns, self.target.table, in_files=self.scan.columns
        )
        require_checked(values, self.scan.columns, self.target.checks)
        of_old = keys.take(positions)
        order = np.lexsort((of_old.row_ids, of_old.buckets, of_old.write_ids))
        of_old, values = of_old.take(order), values.take(from_numpy(order))
        names = [column.name for column in self.scan.columns]
        lengths: list[int] = []

        def write(files: EventFiles) -> None:
            files.delete(deletes, are_updated)
            with PlacedRows(files) as placed:
                # Spark sorts the rows of a task by their old keys, with NULL first.
                for rows, source_rows in inserted:
                    places = places_of(rows, self.target.partition_columns)
                    fresh = require_checked(
                        rows.select(names), self.scan.columns, self.target.checks
                    )
                    placed.add(fresh, places, self._writers_of(fresh, source_rows, deletes))
                    lengths.append(len(fresh))
                placed.add(values, of_old.places, of_old.numbers)
                placed.write()

        return publish_events(self.target, write), sum(lengths)

    def _writers_of(self, fresh: pa.Table, source_rows: np.ndarray, deletes: Keys) -> np.ndarray:
        """The bucket number of each inserted row: Hive's hash, or its turn."""
        hashed = buckets_of(fresh, self.target)
        if hashed is None:
            needed = files_needed(len(self.source))
            return np.asarray(source_rows % max(self.scan.highest_bucket + 1, needed))
        assert self.target.buckets is not None
        if (deletes.numbers >= self.target.buckets.count).any():
            raise NeedsSpark("rows in more buckets than the table declares")
        return hashed


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
