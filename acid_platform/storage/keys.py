"""All events of an ACID file by their keys, to be checked: order, groups, key index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from acid_platform.errors import CorruptFile
from acid_platform.layout import schema
from acid_platform.layout.schema import RowKey
from acid_platform.snapshot.sources import Source
from acid_platform.storage.files import Files
from acid_platform.storage.orc import acid_columns, open_orc, reading, stripe_rows
from acid_platform.storage.sources import open_source


@dataclass(frozen=True, slots=True)
class EventKeys:
    """The five id columns of a file, int64 arrays (n,) in the order of its rows."""

    rows: int
    operation: np.ndarray
    original: np.ndarray
    bucket: np.ndarray
    row_id: np.ndarray
    current: np.ndarray

    def key(self, at: int) -> RowKey:
        return int(self.original[at]), int(self.bucket[at]), int(self.row_id[at])

    def first_descent(self) -> int | None:
        """The first row whose key is not below that of the next one; None: all ascend (P15)."""
        dw, db, dr = (np.diff(one) for one in (self.original, self.bucket, self.row_id))
        ascends = (dw > 0) | ((dw == 0) & ((db > 0) | ((db == 0) & (dr > 0))))
        return None if ascends.all() else int(np.argmin(ascends))

    def groups(
        self, mask: np.ndarray | None = None
    ) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """((write id, bucket), its rowIds) of all rows, or of those in the mask."""
        chosen = slice(None) if mask is None else mask
        original, bucket, row_id = (
            one[chosen] for one in (self.original, self.bucket, self.row_id)
        )
        if not len(row_id):
            return
        order = np.lexsort((bucket, original))
        original, bucket, row_id = original[order], bucket[order], row_id[order]
        edges = np.flatnonzero((np.diff(original) != 0) | (np.diff(bucket) != 0)) + 1
        for low, high in zip([0, *edges], [*edges, len(row_id)], strict=True):
            yield (int(original[low]), int(bucket[low])), row_id[low:high]


_NOTHING = np.empty(0, np.int64)


def read_events(files: Files, source: Source, rows: bool = True) -> EventKeys:
    """The events of an ACID source; without `rows` only how many there are.

    Raises CorruptFile.
    """
    with reading(source.path):
        file = open_source(files, source)
        columns = acid_columns(file, source.path)[:5]
        if not rows:
            return EventKeys(int(file.nrows), *[_NOTHING] * 5)
        table = file.read(columns=columns)
        if any(table.column(name).null_count for name in columns):
            raise CorruptFile(f"{source.path} has an event without a row key; restore the file")
        ids = [table.column(name).to_numpy().astype(np.int64, copy=False) for name in columns]
    return EventKeys(len(ids[0]), *ids)


def key_index_flaw(files: Files, path: str, events: EventKeys) -> tuple[str, bool] | None:
    """What is wrong with `hive.acid.key.index` of a file, and whether that harms (F8).

    An absent index is harmless to Hive 4, a wrong one is not. None: each stripe's last key is
    there. Raises CorruptFile.
    """
    found = _user_metadata(files, path).get(schema.KEY_INDEX.encode(), b"").decode()
    if not found:
        return f"no {schema.KEY_INDEX} in the footer", False
    try:
        index = [tuple(int(one) for one in entry.split(",")) for entry in found.split(";") if entry]
    except ValueError:
        return f"{schema.KEY_INDEX} is {found[:60]!r}, no list of row keys", True
    ends = np.cumsum(stripe_rows(files, path)) - 1
    expected = [events.key(int(at)) for at in ends]
    if len(index) != len(expected):
        return f"{schema.KEY_INDEX} has {len(index)} keys for {len(expected)} stripes", False
    wrong = [(said, is_) for said, is_ in zip(index, expected, strict=True) if said != is_]
    if wrong:
        said, is_ = wrong[0]
        return f"{schema.KEY_INDEX} says {said} where a stripe ends with {is_}", True
    return None


def has_key_index(files: Files, path: str) -> bool:
    """Whether the file went through `finish_file`, which has seen that its keys ascend.

    Raises CorruptFile.
    """
    return schema.KEY_INDEX.encode() in _user_metadata(files, path)


def _user_metadata(files: Files, path: str) -> dict[bytes, bytes]:
    with reading(path):
        return dict(open_orc(files, path).metadata or {})
