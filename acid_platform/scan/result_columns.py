"""The columns of a scan's result, from those that are decoded of a file.

Which are needed, what they are called there, and the values of the rows that are kept, as the table
declares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.errors import UnsupportedLayout
from acid_platform.formats.data_file import DataFile, RowKeys, numbers_kept
from acid_platform.layout import file_entries
from acid_platform.layout.types import Column, HiveType
from acid_platform.scan.source_files import SourceFile
from acid_platform.values.arrow_types import arrow_type, filled, from_numpy, keeps_codes, plain
from acid_platform.values.stored_values import as_declared, require_digits

if TYPE_CHECKING:
    from sqlglot import exp

    from acid_platform.scan.scans import ArrowScan

PLACE = Column("__place", HiveType("bigint"))
"""The place of a row in its scan: the number of its file there times FILE_PLACES, and the number of
the row in its file. It means the same in each scan of the same files."""
FILE_PLACES = 1 << 40

ROW_ID_TYPE = pa.struct([("writeid", pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())])
Values: TypeAlias = Mapping[str, pa.Array | pa.Scalar]
_Arrays: TypeAlias = Mapping[str, pa.Array]


class Predicate(Protocol):
    """Keeps the rows for which `mask` is true; a NULL drops the row."""

    @property
    def columns(self) -> frozenset[str]: ...

    @property
    def tree(self) -> exp.Expr | None:
        """As the parser reads it; None if no bounds of a column tell anything."""
        ...

    def mask(self, values: Values) -> pa.Array | pa.Scalar: ...


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """Takes the columns of a result from those that are decoded of a file."""

    read: ArrowScan
    partition: Values
    """The values of the file's partition by column."""
    source: SourceFile

    def needed(self) -> tuple[Column, ...]:
        """The stored columns that the result or the predicate needs."""
        predicate = self.read.predicate
        names = {*self.read.names, *(predicate.columns if predicate else ())}
        return tuple(column for column in self.read.scan.columns if column.name in names)

    def phases(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """Columns that the predicate needs, and columns that only its matches need."""
        needed, predicate = self.needed(), self.read.predicate
        if predicate is None:
            return needed, ()
        return (
            tuple(column for column in needed if column.name in predicate.columns),
            tuple(column for column in needed if column.name not in predicate.columns),
        )

    def find(self, file: DataFile) -> dict[str, str]:
        """Needed column → its name in the file; columns that the file lacks are left out.

        Columns match by id, if the file has ids, or by name, ignoring case, or by position if an
        old writer stored no names. Raises UnsupportedLayout for a name that two columns have.
        """
        if ids := file.ids:
            return {column.name: ids[column.id] for column in self.needed() if column.id in ids}
        stored = file.names
        if file_entries.is_positional(stored):
            names = dict(
                zip((column.name for column in self.read.scan.columns), stored, strict=False)
            )
        else:
            names = {name.lower(): name for name in stored}
        found = {
            column.name: names[column.name] for column in self.needed() if column.name in names
        }
        if len(names) < len(stored):
            refuse_same_names(found.values(), stored, self.source.path)
        return found

    def _conformed(
        self, stored: _Arrays, rows: int, columns: Sequence[Column]
    ) -> dict[str, pa.Array | pa.Scalar]:
        source, as_stored = self.source, self.read.as_stored
        values = dict[str, pa.Array | pa.Scalar]()
        for column in columns:
            if column.name not in stored:
                values[column.name] = pa.nulls(rows, arrow_type(column.type))
                continue
            array, where = stored[column.name], f"{source.path}, column {column.name}"
            if as_stored and keeps_codes(array.type, column.type):
                values[column.name] = array
                continue
            array = plain(array)
            if not (as_stored or source.is_sure(column)):
                require_digits(array, where)
            unit = _unit(array.type) if as_stored else "us"
            values[column.name] = as_declared(array, column.type, where, unit, source.by_arrow)
        return values

    def kept(
        self, keep: np.ndarray, stored: _Arrays, columns: Sequence[Column]
    ) -> dict[str, pa.Array | pa.Scalar]:
        """The values of the rows that are kept, by column."""
        return self._conformed(_filtered(stored, keep), rows_in(keep), columns)

    def accepted(
        self, keep: np.ndarray, stored: _Arrays, columns: Sequence[Column]
    ) -> tuple[np.ndarray, dict[str, pa.Array | pa.Scalar]]:
        """The rows that the predicate keeps, and their values decoded so far, by column."""
        predicate = self.read.predicate
        if predicate is None:
            return keep, {**self.partition, **self.kept(keep, stored, columns)}
        values = self._conformed(stored, len(keep), columns)
        mask = predicate.mask({**self.partition, **values})
        if isinstance(mask, pa.Scalar):
            keep = keep if mask.as_py() else keep[:0].astype(np.int64)
        elif keep.dtype == bool:
            keep = keep & filled(mask, False)
        else:
            keep = keep[filled(mask, False)[keep]]
        needed = {name: array for name, array in values.items() if name in self.read.names}
        return keep, {**self.partition, **_filtered(needed, keep)}

    def batch(
        self, values: Values, keep: np.ndarray, identity: RowKeys, first: int
    ) -> pa.RecordBatch:
        """The batch of the rows that are kept, of which these are the values; `identity` are the
        keys of all rows of the piece, and `first` is the place of its first row."""
        target, rows = self.read.schema, rows_in(keep)
        if not len(target):
            return without_columns(rows)
        if not rows:
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, field.type) for field in target], schema=target
            )
        if PLACE.name in self.read.names:
            values = {**values, PLACE.name: from_numpy(numbers_kept(keep, first))}
        arrays = [
            value if isinstance(value := values[name], pa.Array) else pa.repeat(value, rows)
            for name in self.read.names
        ]
        if self.read.row_id and identity is not None:
            w, b, r = identity.of(keep)
            arrays.append(
                pa.StructArray.from_arrays(
                    [from_numpy(w), from_numpy(b.astype(np.int32)), from_numpy(r)],
                    fields=list(ROW_ID_TYPE),
                )
            )
        if self.read.as_stored:
            target = pa.schema(
                [(name, array.type) for name, array in zip(target.names, arrays, strict=True)]
            )
        return pa.RecordBatch.from_arrays(arrays, schema=target)


def rows_in(keep: np.ndarray) -> int:
    """How many rows a mask keeps, or how many numbers of rows there are."""
    return int(np.count_nonzero(keep)) if keep.dtype == bool else len(keep)


def _filtered(arrays: _Arrays, keep: np.ndarray) -> dict[str, pa.Array]:
    """The rows of the mask, or those with these numbers."""
    if keep.dtype != bool:
        numbers = from_numpy(keep)
        return {name: array.take(numbers) for name, array in arrays.items()}
    if keep.all():
        return dict(arrays)
    mask = from_numpy(keep)
    return {name: array.filter(mask) for name, array in arrays.items()}


def refuse_same_names(wanted: Iterable[str], names: Sequence[str], path: str) -> None:
    """Raises UnsupportedLayout for a wanted name that two columns of the file have, in any case."""
    for name in wanted:
        same = [other for other in names if other.lower() == name.lower()]
        if len(same) > 1:
            raise UnsupportedLayout(
                f"{path} has the columns {' and '.join(same)}, which are one name, as letter case"
                " is ignored; rename one where it is written"
            )


def _unit(kind: pa.DataType) -> str:
    """The unit of the timestamps in a decoded column; `us` if it has none."""
    if pa.types.is_timestamp(kind):
        return str(kind.unit)
    units = {_unit(kind.field(i).type) for i in range(kind.num_fields)}
    return "ns" if "ns" in units else "us"


def without_columns(rows: int) -> pa.RecordBatch:
    """A batch of so many rows and no column."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
