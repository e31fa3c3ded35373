"""Rows with keys in Parquet files, by Spark's own reader: tasks divide files, filters are pushed.

In most files the keys follow from the positions of the rows, which Spark's reader tells. What one
row of a file lacks, the write id, the bucket property and the rowId of the first row, is joined by
the file's path. Other files store keys in three columns, which are read where they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import NO_INSERT
from acid_platform.engine.spark.few_calls import cached, file_frame, selected
from acid_platform.engine.spark.row_keys import KEYS, key_fields
from acid_platform.formats.data_file import KEY
from acid_platform.formats.keyed_parquet import NAMES_OF_KEYS
from acid_platform.layout.sql_text import sql_string
from acid_platform.scan.source_files import SourceFile
from acid_platform.transactions import ValidWriteIdList

_STORED = tuple(NAMES_OF_KEYS[part] for part in KEY)
"""The columns with the parts of the keys, where they are stored."""
_BY_PATH = ("__path", "__write", "__of", "__first")
_FILE, _AT = "__file", "__at"
"""The path of a row's file, and its position there."""
_ROW_BYTES = 200


def by_position(source: SourceFile) -> bool:
    """Whether the keys of its rows follow from their positions, by what is recorded."""
    return source.keys is not None and source.keys.without_gaps(source.rows)


def is_seen(source: SourceFile, write_ids: ValidWriteIdList) -> bool:
    """Whether the rows of a file whose keys follow from the positions count: one write id inserted
    all of them."""
    assert source.keys is not None
    write_id = source.keys.write_ids[0]
    if source.test_rows and (
        write_id > write_ids.high_watermark or write_id in {*write_ids.open, *write_ids.aborted}
    ):
        return False
    return write_id > source.above


def values_frame(
    spark: SparkSession, uris: Sequence[str], columns: T.StructType, stored_keys: bool
) -> DataFrame:
    """The rows of files, with `_STORED` if they are needed."""
    kinds = [field.dataType for field in key_fields()]
    keys = [T.StructField(*each) for each in zip(_STORED, kinds, strict=True)]
    fields = [*columns.fields, *(keys if stored_keys else ())]
    return file_frame(spark, "parquet", uris, T.StructType(fields))


def selected_keys(uris: Sequence[str]) -> list[str]:
    """SQL of KEYS in files that store them; a row without one fails the job."""
    error = f"raise_error({sql_string(f'{NO_INSERT} {uris[0]} ({len(uris)} files): -1')})"
    kinds = [field.dataType.simpleString() for field in key_fields()]
    return [
        f"coalesce({name}, CAST({error} AS {kind})) AS {key}"
        for name, kind, key in zip(_STORED, kinds, KEYS, strict=True)
    ]


def tested_write_id() -> str:
    """The name of the column whose write ids are tested, in files that store keys."""
    return _STORED[0]


def with_positions(
    frame: DataFrame, files: Sequence[tuple[str, SourceFile]], expressions: Sequence[str]
) -> DataFrame:
    """The expressions over a frame of files whose keys follow from the positions, then KEYS.

    `files`: each with its path as Spark spells it in `_metadata`. A row of another file fails the
    job.
    """
    if len(files) == 1:
        ((_, source),) = files
        writer, property_, row = _first_key(source)
        made = (f"{writer}L", str(property_), f"{row}L + _metadata.row_index")
        keys = [f"{sql} AS {key}" for sql, key in zip(made, KEYS, strict=True)]
        return selected(frame, [*expressions, *keys])
    placed = ["_metadata.file_path AS " + _FILE, "_metadata.row_index AS " + _AT]
    rows = selected(frame, [*expressions, *placed])
    spark = frame.sparkSession
    facts = ("first keys", *((path, *_first_key(source)) for path, source in files))
    firsts = cached(spark, facts, _ROW_BYTES * len(files), lambda: _firsts(spark, files))
    path, write_id, bucket, first = _BY_PATH
    joined = rows.join(F.broadcast(firsts), rows[_FILE] == firsts[path], "left")
    missing = f"CAST(raise_error(concat({sql_string(f'{NO_INSERT} ')}, {_FILE}, ': -1')) AS bigint)"
    own = [name for name in rows.columns if name not in (_FILE, _AT)]
    return selected(
        joined,
        [
            *(f"`{name.replace('`', '``')}`" for name in own),
            f"coalesce({write_id}, {missing}) AS {KEYS[0]}",
            f"{bucket} AS {KEYS[1]}",
            f"{first} + {_AT} AS {KEYS[2]}",
        ],
    )


def _first_key(source: SourceFile) -> tuple[int, int, int]:
    assert source.keys is not None
    return source.keys.write_ids[0], source.keys.buckets[0], source.keys.row_ids[0]


def _firsts(spark: SparkSession, files: Sequence[tuple[str, SourceFile]]) -> DataFrame:
    columns = zip(*((path, *_first_key(source)) for path, source in files), strict=True)
    kinds = (pa.string(), pa.int64(), pa.int32(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=list(_BY_PATH)))
