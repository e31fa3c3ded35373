"""A flat file of Spark, once nested, reads like a file that Spark wrote nested."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyorc
import pytest
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.errors import CorruptFile
from acid_platform.layout.orc_tail import TYPES, footer_of
from acid_platform.layout.protobuf import fields
from acid_platform.layout.types import Column, parse_columns
from acid_platform.storage.files import Files
from acid_platform.storage.nesting import finish_flat_file
from acid_platform.storage.orc import finish_file
from acid_platform.storage.orc_inspect import events, metadata

pytestmark = pytest.mark.spark

COLUMNS = (
    "id bigint, word string, price decimal(9,2), far decimal(30,4), day date, at timestamp,"
    " yes boolean, share double, tags array<string>, known map<string,int>,"
    " place struct<x:int,deep:struct<names:array<string>,n:bigint>>, code char(4), nothing int"
)
ROWS = 12_000


def values(spark: SparkSession) -> DataFrame:
    word = "concat('w', id % 97)"
    return spark.range(0, ROWS, 1, 1).selectExpr(
        "id",
        f"if(id % 11 = 0, NULL, {word}) AS word",
        "cast(id / 7 AS decimal(9,2)) AS price",
        "cast(id * 1e9 AS decimal(30,4)) AS far",
        "date_add(date'1999-01-01', int(id % 900)) AS day",
        "timestamp_micros(id * 1000003) AS at",
        "id % 3 = 0 AS yes",
        "id / 3 AS share",
        f"if(id % 5 = 0, NULL, array({word}, NULL, 'b')) AS tags",
        f"if(id % 7 = 0, NULL, map({word}, int(id))) AS known",
        f"named_struct('x', int(id % 13), 'deep', if(id % 4 = 0, NULL,"
        f" named_struct('names', array({word}), 'n', id))) AS place",
        "rpad(concat('c', id % 50), 4, ' ') AS code",
        "CAST(NULL AS int) AS nothing",
    )


def written(
    frame: DataFrame,
    columns: tuple[Column, ...],
    where: Path,
    flat: bool,
    options: Mapping[str, str],
) -> str:
    """The path of a finished ACID file with the frame's rows."""
    row = [F.col(column.name) for column in columns]
    ids = [
        F.lit(0).alias("operation"),
        F.lit(7).cast("bigint").alias("originalTransaction"),
        F.lit(1 << 29).alias("bucket"),
        F.monotonically_increasing_id().alias("rowId"),
        F.lit(7).cast("bigint").alias("currentTransaction"),
    ]
    body = (
        [column.alias(f"__value{i}") for i, column in enumerate(row)]
        if flat
        else [F.struct(*row).alias("row")]
    )
    out = where / f"out{flat}"
    frame.select(*ids, *body).write.options(**options).orc(str(out))
    [part] = map(str, out.glob("part-*.orc"))
    for checksum in out.glob(".*.crc"):  # of the flat file
        checksum.unlink()
    files, _ = Files.of(str(where))
    if not flat:
        assert finish_file(files, part, columns) == ROWS
        return part
    target = str(where / "bucket_00000")
    assert finish_flat_file(files, part, target, columns) == ROWS
    return target


def told(path: str) -> dict[str, object]:
    """The file's metadata without offsets and sizes."""
    said = metadata(Files.of(str(Path(path).parent))[0], path)
    said["stripes"] = [stripe["rows"] for stripe in said["stripes"]]
    footer = footer_of(orc.ORCFile(path).reader.serialized_file_tail())
    types = [field.payload for field in fields(footer) if field.number == TYPES]
    with open(path, "rb") as content:
        reader = pyorc.Reader(content)
        said["statistics"] = [
            {key: value for key, value in reader[number].statistics.items() if "byte" not in key}
            for number in range(len(types))
        ]
    return said | {"types": types}


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zlib", "orc.stripe.row.count": "5000"},
        {"compression": "snappy"},
        {"compression": "zstd", "orc.compress.size": "4096"},
        {"compression": "none"},
        {"compression": "zlib", "orc.create.index": "false"},
        {
            "compression": "zlib",
            "orc.row.index.stride": "1000",
            "orc.bloom.filter.columns": "__value0",
        },
    ],
    ids=lambda options: " ".join(options.values()),
)
def test_every_reader_finds_the_same(
    tmp_path: Path, spark: SparkSession, options: Mapping[str, str]
) -> None:
    columns = parse_columns(COLUMNS)
    frame = values(spark)
    flat = written(frame, columns, tmp_path, True, options)
    nested = written(frame, columns, tmp_path, False, options)
    assert told(flat) == told(nested)
    assert orc.read_table(flat).equals(orc.read_table(nested))
    files, _ = Files.of(str(tmp_path))
    assert list(events(files, flat))[::997] == list(events(files, nested))[::997]
    ours, theirs = (spark.read.orc(path) for path in (flat, nested))
    assert ours.schema == theirs.schema

    def found(frame: DataFrame, where: str) -> list[str]:
        # All six columns: Spark prunes those of ACID files wrongly (F24).
        rows = frame.where(where).select(F.to_json(F.struct("*")).alias("row")).collect()
        return [row["row"] for row in rows]

    for where, rows in {
        "true": ROWS,
        "row.id = 10011": 1,
        "row.word = 'w5' AND row.id > 9000": None,
        "row.nothing IS NOT NULL": 0,
        "rowId BETWEEN 10345 AND 10350": 6,
        "row.place.x = 3 AND row.day < '1999-02-01'": None,
    }.items():
        one, other = found(ours, where), found(theirs, where)
        assert one == other and len(one) == (len(other) if rows is None else rows), where


def test_several_stripes_are_found_by_their_places(tmp_path: Path, spark: SparkSession) -> None:
    flat = written(
        values(spark),
        parse_columns(COLUMNS),
        tmp_path,
        True,
        {"compression": "zlib", "orc.stripe.size": "50000", "orc.stripe.row.count": "4000"},
    )
    file = orc.ORCFile(flat)
    assert file.nstripes > 2
    read = [file.read_stripe(i, columns=["rowId", "row.id"]) for i in range(file.nstripes)]
    ids = pa.Table.from_batches(read).to_pydict()
    assert ids["rowId"] == list(range(ROWS)) == [row["id"] for row in ids["row"]]


@pytest.mark.parametrize("damage", ["cut", "footer of a stripe", "another column"])
def test_what_spark_did_not_write_is_refused(
    tmp_path: Path, spark: SparkSession, damage: str
) -> None:
    columns = parse_columns("id bigint")
    files, _ = Files.of(str(tmp_path))
    spark.range(3).coalesce(1).selectExpr(
        "0 AS operation",
        "1L AS originalTransaction",
        "1 AS bucket",
        "id AS rowId",
        "1L AS currentTransaction",
        "id AS __value0",
    ).write.option("compression", "zlib").orc(str(tmp_path / "out"))
    [part] = (tmp_path / "out").glob("part-*.orc")
    content = part.read_bytes()
    if damage == "cut":
        part.write_bytes(content[:-20])
    elif damage == "another column":
        columns = parse_columns("id bigint, more int")
    else:
        [stripe] = metadata(files, str(part))["stripes"]
        end = stripe["offset"] + stripe["bytes"]
        part.write_bytes(content[: end - 9] + b"\xff" * 9 + content[end:])
    with pytest.raises(CorruptFile, match="part-"):
        finish_flat_file(files, str(part), str(tmp_path / "bucket_00000"), columns)
