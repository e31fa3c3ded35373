"""The keys of all events of an ACID file, and checks on them: order, groups, key index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from acid_platform.formats.orc import open_orc, reading
from acid_platform.layout import schema
from acid_platform.layout.schema import RowKey, ascending_steps
from acid_platform.scan.source_files import SourceFile, open_source
from acid_platform.storage.files import Files
from acid_platform.values.arrow_numpy import group_begins


@dataclass(frozen=True, slots=True)
class EventKeys:
    """The five id columns of a file, int64 arrays (n,) in file order."""

    rows: int
    operation: np.ndarray
    original: np.ndarray
    bucket: np.ndarray
    row_id: np.ndarray
    current: np.ndarray

    def key(self, at: int) -> RowKey:
        return int(self.original[at]), int(self.bucket[at]), int(self.row_id[at])

    def first_descent(self) -> int | None:
        """The first row whose key is not below the next row's key; None if all ascend (P15)."""
        steps = ascending_steps(self.original, self.bucket, self.row_id)
        return None if steps.all() else int(np.argmin(steps))

    def groups(
        self, mask: np.ndarray | None = None
    ) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """((write id, bucket property), rowIds) of all rows, or of the rows in `mask`."""
        chosen = slice(None) if mask is None else mask
        original, bucket, row_id = (
            ids[chosen] for ids in (self.original, self.bucket, self.row_id)
        )
        order = np.lexsort((bucket, original))
        original, bucket, row_id = original[order], bucket[order], row_id[order]
        starts = np.flatnonzero(group_begins(original, bucket))
        for low, high in pairwise([*starts, len(row_id)]):
            yield (int(original[low]), int(bucket[low])), row_id[low:high]


_NOTHING = np.empty(0, np.int64)


def read_events(files: Files, source: SourceFile, rows: bool = True) -> EventKeys:
    """The event keys of an ACID source; with `rows` False only their number is read.

    Raises CorruptFile.
    """
    with reading(source.path):
        file = open_source(files, source)
        file.acid_columns()  # raises without them
        if not rows:
            return EventKeys(int(file.nrows), *[_NOTHING] * 5)
        batches = [[_NOTHING] * 5, *file.event_ids()]
    ids = [np.concatenate(column) for column in zip(*batches, strict=True)]
    return EventKeys(len(ids[0]), *ids)


def key_index_flaw(files: Files, path: str, events: EventKeys) -> tuple[str, bool] | None:
    """What is wrong with a file's `hive.acid.key.index`, and whether it does harm.

    Hive 4 copes with a missing index, not with a wrong one. None if the index lists the last key of
    every stripe. Raises CorruptFile.
    """
    with reading(path):
        file = open_orc(files, path)
        text = (file.metadata or {}).get(schema.KEY_INDEX.encode(), b"").decode()
    if not text:
        return f"no {schema.KEY_INDEX} in the footer", False
    try:
        index = [
            tuple(int(number) for number in entry.split(",")) for entry in text.split(";") if entry
        ]
    except ValueError:
        return f"{schema.KEY_INDEX} is {text[:60]!r}, which is not a list of row keys", True
    ends = np.cumsum(file.stripe_rows) - 1
    expected = [events.key(int(at)) for at in ends]
    if len(index) != len(expected):
        return f"{schema.KEY_INDEX} has {len(index)} keys for {len(expected)} stripes", False
    wrong = [
        (indexed, actual)
        for indexed, actual in zip(index, expected, strict=True)
        if indexed != actual
    ]
    if wrong:
        indexed, actual = wrong[0]
        return f"{schema.KEY_INDEX} says {indexed}, but the stripe ends with {actual}", True
    return None


def has_key_index(files: Files, path: str) -> bool:
    """Whether the file has a key index, which is written only if its keys ascend.

    Raises CorruptFile.
    """
    with reading(path):
        return schema.KEY_INDEX.encode() in (open_orc(files, path).metadata or {})
