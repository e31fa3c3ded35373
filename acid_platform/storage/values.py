"""Sums over the values of columns, the same in whatever order the rows come (compaction C32).

DuckDB lends its vectorised hash, and nothing else: in memory, a batch at a time. That takes about
half of the CPU that reading the values takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.compaction.validation import Profile, combine


class ValueSums:
    """Of each column the NULLs, and a 64-bit hash of each value, NULL too, added up.

    Timestamps count in nanoseconds, modulo 2**64 beyond the years that these can hold.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._connection = duckdb.connect(config={"threads": 1})
        self._checksums: Counter[str] = Counter()
        self._nulls: Counter[str] = Counter()

    def add(self, row: pa.StructArray) -> None:
        """Rows with these columns, in this order."""
        if not len(row):
            return
        values = [_hashable(pc.struct_field(row, [i])) for i in range(len(self._columns))]
        # The hash of a list is blind for NULLs at its end: its text is not.
        each = ", ".join(
            f"sum(hash(c{i}{f', c{i}::VARCHAR' if pa.types.is_nested(one.type) else ''})),"
            f" count(*) - count(c{i})" for i, one in enumerate(values))
        self._connection.register("batch", pa.table(
            values, [f"c{i}" for i in range(len(values))]))
        [found] = self._connection.execute(f"SELECT {each} FROM batch").fetchall()
        for name, checksum, nulls in zip(self._columns, found[::2], found[1::2], strict=True):
            self._checksums[name] += int(checksum)
            self._nulls[name] += nulls

    def profile(self) -> Profile:
        """The sums so far; nothing else of the profile is set."""
        return combine([Profile(column_checksums=dict.fromkeys(self._columns, 0) | self._checksums,
                                null_counts=dict.fromkeys(self._columns, 0) | self._nulls)])


def _hashable(array: pa.Array) -> pa.Array:
    """The same values in a type that DuckDB takes whatever they are."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())  # files may hold what is no UTF-8
    target = _without_maps(array.type)
    return array if target == array.type else array.cast(target, safe=False)


def _without_maps(kind: pa.DataType) -> pa.DataType:
    """Maps as lists of pairs, since files may repeat a key; timestamps in nanoseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns")
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _without_maps(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_maps(kind.value_type))
    if pa.types.is_map(kind):
        pair = [("key", _without_maps(kind.key_type)), ("value", _without_maps(kind.item_type))]
        return pa.list_(pa.struct(pair))
    return kind
