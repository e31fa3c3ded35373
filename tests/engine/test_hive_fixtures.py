"""Tables that Hive wrote, read back at every snapshot: rows and row ids equal Hive's."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from acid_platform.engine.open import TableLayout, open_scan
from acid_platform.engine.scan import read_frame
from acid_platform.layout.partitions import partition_name
from acid_platform.layout.types import Column, parse_type
from acid_platform.storage.files import Files
from acid_platform.storage.orc import orc_schema
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

HERE = Path(__file__).parent.parent / "fixtures" / "hive"
MORE = Path(os.environ.get("ACID_FIXTURES", HERE.parents[3] / "shared" / "fixtures" / "hive"))
NEED_ORIGINALS = ("originals", "original", "streaming")
"""Layouts that the storage issue brings: original files and flush-length side files."""


def _tables() -> list[Path]:
    found = {path.parent.name: path.parent for root in (MORE, HERE)
             for path in root.glob("*/expected.json")}
    return [found[name] for name in sorted(found)
            if not any(word in name for word in NEED_ORIGINALS)]


def _snapshots() -> list[Any]:
    return [
        pytest.param(table, name, snapshot, id=f"{table.name}-{name}")
        for table in _tables()
        for name, snapshot in json.loads((table / "expected.json").read_text())["snapshots"].items()
    ]


def _layout(root: Path) -> TableLayout:
    files, path = Files.of(str(root))
    partitions = sorted(one.name for one in root.iterdir() if one.is_dir() and "=" in one.name)
    some = next(root.rglob("*delta_*/bucket_*"), None) or next(root.rglob("base_*/bucket_*"))
    acid = parse_type(orc_schema(files, str(some)))
    columns = tuple(Column(name, kind) for name, kind in acid.children[5][1].children)
    keys = (Column("p", parse_type("string")),) if partitions else ()
    return TableLayout(root.name, files, path, columns, keys, dict.fromkeys(partitions, 0))


def _canonical(value: Any) -> Any:
    match value:
        case Row() | list() | tuple():
            return [_canonical(one) for one in value]
        case dict():
            return {str(key): _canonical(one) for key, one in value.items()}
        case datetime.datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.%f")
        case datetime.date() | decimal.Decimal():
            return str(value)
        case float():
            return repr(value)
        case _:
            return value


def _canonical_row(table: TableLayout, row: Row) -> list[Any]:
    """The table's columns, then the partition's directory name."""
    own = [_canonical(one) for one in row[:len(table.columns)]]
    return own + [partition_name({"p": one}) for one in row[len(table.columns):-1]]


def _sha(lines: list[str]) -> str:
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


@pytest.mark.spark
@pytest.mark.parametrize(("root", "name", "snapshot"), _snapshots())
def test_S_every_snapshot_of_hives_tables(
    spark: SparkSession, tmp_path: Path, root: Path, name: str, snapshot: dict[str, Any]
) -> None:
    # Without a base, a stray file in the table would rightly be refused as an original file.
    root = shutil.copytree(root, tmp_path / "t", ignore=shutil.ignore_patterns("expected.json"))
    high = snapshot["high_watermark"]
    write_ids = ValidWriteIdList.of("d.t", high, aborted=snapshot["invalid_write_ids"])
    table = _layout(root)
    if "error" in snapshot:
        with pytest.raises(Exception, match="history"):
            open_scan(table, write_ids, ValidTxnList.everything())
        return
    scan = open_scan(table, write_ids, ValidTxnList.everything())
    frame = read_frame(spark, scan, row_id=True)
    rows = frame.collect()
    assert len(rows) == snapshot["rows"]
    canonical = [
        json.dumps(_canonical_row(table, row), separators=(",", ":"), sort_keys=True)
        for row in rows
    ]
    ids = sorted(tuple(row[-1]) for row in rows)
    assert _sha([f"{w},{b},{r}" for w, b, r in ids]) == snapshot["sha256_row_ids"]
    assert _sha(sorted(canonical)) == snapshot["sha256_rows"]


def test_fixtures_beyond_the_committed_ones_are_found_or_said_to_be_absent() -> None:
    if not MORE.is_dir():
        pytest.skip(f"{MORE} is absent: only the committed tables of Hive are read")
    assert len(_tables()) > len(list(HERE.glob("*/expected.json")))
