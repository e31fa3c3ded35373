"""Rows that a snapshot does not show, told as positions in their files; and the small Parquet files
with these positions, as Iceberg's format 2 has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.formats.file_access import reading
from acid_platform.formats.parquet_files import open_parquet, row_group
from acid_platform.iceberg.columns import Json
from acid_platform.scan.result_columns import FILE_PLACES, PLACE
from acid_platform.scan.scans import ArrowScan, EntityScan, Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import from_numpy, values_of

_PATH, _POSITION = 2147483546, 2147483545
"""The ids that the specification reserves for the two columns."""

_SCHEMA = pa.schema(
    [
        pa.field(name, kind, False, {"PARQUET:field_id": str(number)})
        for name, kind, number in (
            ("file_path", pa.string(), _PATH),
            ("pos", pa.int64(), _POSITION),
        )
    ]
)
Positions = dict[str, np.ndarray]
"""Positions in files, by their paths as readers get them: int64 (n,), ascending strictly."""


def tested(entity: EntityScan, source: SourceFile) -> bool:
    """Whether the snapshot may leave out rows of the file."""
    if source.test_rows or source.above >= 0:
        return True
    return entity.deletes.may_touch(source.low, source.high, source.number)


def hidden_rows(scan: Scan, entity: EntityScan, sources: Sequence[SourceFile]) -> list[np.ndarray]:
    """The positions of the rows that the snapshot does not show, for each of these files.

    Only keys are decoded, and of files in which each row may be read, nothing. Raises CorruptFile,
    UnsupportedLayout.
    """
    numbers = [n for n, source in enumerate(sources) if tested(entity, source)]
    shown = [np.zeros(sources[n].rows or 0, bool) for n in numbers]
    some = entity.with_inserts(sources[n] for n in numbers)
    read = ArrowScan(replace(scan, entities=(some,)), (PLACE.name,))
    for batch in read.batches() if numbers else ():
        places = values_of(batch.column(0))
        if len(places):
            shown[int(places[0]) // FILE_PLACES][places % FILE_PLACES] = True
    hidden = [np.zeros(0, np.int64) for _ in sources]
    for n, mask in zip(numbers, shown, strict=True):
        hidden[n] = np.flatnonzero(~mask)
    return hidden


def write_positions(files: Files, path: str, where: str, positions: Positions) -> Json:
    """Writes a file of deleted positions; `where`: its path as readers get it. Returns its
    `data_file` without the partition."""
    names = sorted(positions)
    counts = [len(positions[name]) for name in names]
    index = from_numpy(np.repeat(np.arange(len(names), dtype=np.int32), counts))
    paths = pa.DictionaryArray.from_arrays(index, pa.array(names, pa.string())).cast(pa.string())
    rows = np.concatenate([positions[name] for name in names])
    table = pa.Table.from_arrays([paths, from_numpy(rows)], schema=_SCHEMA)
    with files.system.open_output_stream(path) as stream:
        parquet.write_table(
            table,
            stream,
            compression="zstd",
            store_schema=False,
            use_dictionary=["file_path"],
            column_encoding={"pos": "DELTA_BINARY_PACKED"},
        )
    return {
        "file_path": where,
        "record_count": len(rows),
        "file_size_in_bytes": files.system.get_file_info(path).size,
        "value_counts": None,
        "null_value_counts": None,
        "lower_bounds": [{"key": _PATH, "value": names[0].encode()}],
        "upper_bounds": [{"key": _PATH, "value": names[-1].encode()}],
    }


def read_positions(files: Files, paths: Iterable[str]) -> Positions:
    """What these files of deleted positions say together. Raises CorruptFile."""
    found: dict[str, list[np.ndarray]] = {}
    for path in paths:
        with reading(path), files.open(path) as stream:
            file = open_parquet(stream, path)
            groups = [row_group(file, at, _SCHEMA.names) for at in range(file.num_row_groups)]
        for batch in (batch for group in groups for batch in group.to_batches()):
            told = batch.column(0).dictionary_encode()
            codes, rows = values_of(told.indices), values_of(batch.column(1))
            for number, name in enumerate(told.dictionary.to_pylist()):
                found.setdefault(name, []).append(rows[codes == number])
    return {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}


def without(positions: np.ndarray, told: np.ndarray | None) -> np.ndarray:
    """The positions that were not told before."""
    return positions if told is None else np.setdiff1d(positions, told, assume_unique=True)


def joined(told: Mapping[str, np.ndarray], now: Mapping[str, np.ndarray]) -> Positions:
    """All positions, by file; those of now win."""
    return {name: rows for name, rows in {**told, **now}.items() if len(rows)}
