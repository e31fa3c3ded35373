"""A query's rows as DuckDB computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.engine.local.duckdb_connection import reading
from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.local.translation.duckdb_failures import batches_of
from acid_platform.engine.local.translation.duckdb_types import VOID
from acid_platform.engine.results import EngineName, Result
from acid_platform.errors import InvalidDefinition, NeedsSpark
from acid_platform.layout.types import Column, HiveType
from acid_platform.storage.arrow_types import HIVE_TYPE, arrow_type, declared_columns
from acid_platform.storage.wall_clocks import instants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_A_BATCH = 65_536


@dataclass(frozen=True, repr=False)
class LocalResult(Result):
    """The rows of a query that DuckDB computes over scans of one snapshot."""

    sql: str
    """DuckDB's SQL, whose columns have the names c0, c1 and so on."""
    named: tuple[tuple[str, HiveType], ...]
    """The columns as Spark names and types them."""
    sources: Mapping[str, Callable[[], QuerySource]]
    """Opens what the query reads, by the name of its table."""
    session: Callable[[], SparkSession]
    """Starts Spark, for `to_spark`."""
    reason: str
    engine: EngineName = "local"
    instead: Callable[[str], Result] | None = None
    """Makes the result of an engine that can compute what DuckDB can't, from the reason."""

    def or_else(self, make: Callable[[str], Result]) -> LocalResult:
        return replace(self, instead=make)

    @property
    def columns(self) -> list[str]:
        return [name for name, _ in self.named]

    @property
    def schema(self) -> pa.Schema:
        """As Table.to_arrow returns the rows; CHAR and VARCHAR stand in the metadata."""
        return pa.schema([_field(name, kind) for name, kind in self.named])

    def declared(self) -> tuple[Column, ...]:
        for name, kind in self.named:
            if kind == VOID:
                raise InvalidDefinition(
                    f"column {name} of the query is NULL without a type; write CAST(NULL AS string)"
                )
        return declared_columns(self.schema)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        try:
            return pa.Table.from_batches(self._computed(limit), self.schema)
        except NeedsSpark as error:
            return self._other(error).to_arrow(limit)

    def held(self, most_bytes: int) -> pa.Table | Result:
        batches, total = [], 0
        for batch in self.batches():
            total += batch.nbytes
            if total > most_bytes:
                why = f"a result of more than {most_bytes:,} bytes (acid.local.max.bytes)"
                return self._other(NeedsSpark(why))
            batches.append(batch)
        return pa.Table.from_batches(batches, self.schema)

    def batches(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._restarted())

    def _restarted(self) -> Iterator[pa.RecordBatch]:
        """The batches; the other engine's if this one fails before the first."""
        begun = False
        try:
            for batch in self._computed():
                begun = True
                yield batch
        except NeedsSpark as error:
            if begun:
                raise
            yield from self._other(error).batches()

    def _other(self, error: NeedsSpark) -> Result:
        """The result of the engine that can. Raises the error if there is none."""
        if self.instead is None:
            raise error
        return self.instead(str(error)).renamed(self.columns)

    def to_spark(self) -> DataFrame:
        return self.session().createDataFrame(instants(self.to_arrow()))

    def renamed(self, names: Sequence[str]) -> LocalResult:
        kinds = (kind for _, kind in self.named)
        return replace(self, named=tuple(zip(names, kinds, strict=True)))

    def plan(self) -> str:
        with reading(self.sources) as connection:
            (row,) = connection.execute(f"EXPLAIN {self.sql}").fetchall()
            return str(row[1]).strip()

    def count(self) -> int:
        try:
            with reading(self.sources) as connection:
                row = connection.execute(f"SELECT count(*) FROM ({self.sql})").fetchone()
                assert row is not None
                return int(row[0])
        except NeedsSpark as error:
            return self._other(error).count()

    def _computed(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        sql = self.sql if limit is None else f"SELECT * FROM ({self.sql}) LIMIT {limit}"
        schema = self.schema
        with reading(self.sources) as connection:
            for batch in batches_of(connection.sql(sql).to_arrow_reader(ROWS_OF_A_BATCH)):
                arrays = [
                    _shown(array, kind).cast(field.type)
                    for array, (_, kind), field in zip(
                        batch.columns, self.named, schema, strict=True
                    )
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shown(array: pa.Array, kind: HiveType) -> pa.Array:
    """A CHAR padded to its length."""
    return pc.utf8_rpad(array, kind.sizes[0], " ") if kind.kind == "char" else array


def _field(name: str, kind: HiveType) -> pa.Field:
    metadata = {HIVE_TYPE: str(kind).encode()} if kind.is_told else None
    return pa.field(name, _arrow(kind), metadata=metadata)


def _arrow(kind: HiveType) -> pa.DataType:
    if kind == VOID:
        return pa.null()
    match kind.kind:
        case "array":
            return pa.list_(_arrow(kind.children[0][1]))
        case "map":
            return pa.map_(*(_arrow(child) for _, child in kind.children))
        case "struct":
            return pa.struct([(name, _arrow(child)) for name, child in kind.children])
    return arrow_type(kind)
