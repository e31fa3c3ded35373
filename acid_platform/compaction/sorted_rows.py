"""Rows of a compaction in the order of columns, or of their keys, in bounded memory (P85).

DuckDB sorts them, and spills what has no room. The values pass through it as they are; those of
both sides are compared before the output counts, as of every compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from acid_platform.base.databases import Error, in_memory
from acid_platform.errors import CompactionFailed
from acid_platform.formats.data_file import Keyed, StoredKeys
from acid_platform.values.arrow_types import from_numpy, plain, values_of

_KEYS = ("write", "bucket", "row", "changed")
_MEMORY = "256MB"
_ROWS = 1 << 16


def in_order(rows: Iterator[Keyed], columns: Sequence[int] = ()) -> Iterator[Keyed]:
    """Rows with stored keys and equal columns, in the order of the columns with these numbers, and
    then of their keys. Raises CompactionFailed if there is no room, OSError, and what `rows`
    raises."""
    first = next(rows, None)
    if first is None:
        return
    assert first.values is not None, "delete events are in the order of their keys"
    names, kinds = first.values.schema.names, [kind for kind in map(_plain, first.values.schema)]
    checked, failure = True, list[BaseException]()

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from read()
        except BaseException as error:  # DuckDB would make a text of it
            failure.append(error)
            raise

    def read() -> Iterator[pa.RecordBatch]:
        nonlocal checked
        for part in chain([first], rows):
            assert part.values is not None
            checked = checked and part.checked
            keys = [from_numpy(each) for each in (*part.ids, part.makers())]
            values = map(plain, part.values.columns)
            own = [v if v.type == k else v.cast(k) for v, k in zip(values, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays([*own, *keys], schema=schema)

    own = [pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)]
    keys = zip(_KEYS, (*first.ids, first.makers()), strict=True)
    schema = pa.schema([*own, *(pa.field(name, from_numpy(ids).type) for name, ids in keys)])
    connection = in_memory(memory_limit=_MEMORY, threads=2, preserve_insertion_order="false")
    try:
        connection.register("rows", pa.RecordBatchReader.from_batches(schema, batches()))
        order = ", ".join([*(f"c{number}" for number in columns), *_KEYS[:3]])
        found = connection.sql(f"SELECT * FROM rows ORDER BY {order}").to_arrow_reader(_ROWS)
        for batch in found:
            arrays = [
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip(batch.columns, schema, strict=True)
            ]
            *ids, makers = map(values_of, arrays[len(kinds) :])
            values = pa.RecordBatch.from_arrays(arrays[: len(kinds)], names=names)
            yield Keyed(StoredKeys(*ids), makers, values, checked)
    except Error as error:
        if failure:
            raise failure[0] from None
        raise CompactionFailed(
            f"rows could not be sorted: {error}; the inputs were kept: free space in TMPDIR, and"
            " compact it again"
        ) from error
    finally:
        connection.close()


def _plain(field: pa.Field) -> pa.DataType:
    """The type without a dictionary."""
    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type
