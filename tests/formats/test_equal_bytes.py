"""The ORC files that we write stay what they were, byte for byte: who changes them says so here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa

from acid_platform.formats.data_file import Keyed, KeyRun, StoredKeys
from acid_platform.formats.file_access import new_file
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.types import parse_columns
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_schema

COLUMNS = parse_columns(
    "id bigint, small tinyint, yes boolean, name string, code char(3), price decimal(9,2),"
    " day date, at timestamp, x double, tags array<string>, pair struct<a: int, b: string>"
)
ROWS = 25_000
EXPECTED = {
    "inserted": "47b40db9f711a9c3d378587e18b598e3fed9974b4d11a5f608c5207565356372",
    "compacted": "400835c3da94871214f5b0d6cda37c363ae7263f1912f503531b9c729a19b087",
    "deleted": "7b20360b4ff88e3927af4e93a7849b165b823e13fbdb04b03e51621ded053904",
    "plain": "c07df78b31ce723dc5945158408730603952d78be3ce6efe76e8d7f73d2b71e4",
}


def values() -> pa.RecordBatch:
    n = np.arange(ROWS)
    gaps = n % 11 == 3
    columns = {
        "id": pa.array(n * 7),
        "small": pa.array((n % 100).astype(np.int8), mask=gaps),
        "yes": pa.array(n % 3 == 0, mask=gaps),
        "name": pa.array([f"name {i % 977}" for i in n]),
        "code": pa.array([("a", "bc ", "def")[i % 3].ljust(3) for i in n], mask=gaps),
        "price": pa.array(n).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
        "day": pa.array((n % 20_000).astype(np.int32)).cast(pa.date32()),
        "at": pa.array(n * 1_000_003).cast(pa.timestamp("us")),
        "x": pa.array(n / 7, mask=gaps),
        "tags": pa.array([[f"t{i % 5}"] * (i % 3) for i in n]),
        "pair": pa.array([{"a": int(i), "b": None if i % 4 else "b"} for i in n]),
    }
    schema = arrow_schema(COLUMNS)
    return pa.RecordBatch.from_arrays(
        [columns[field.name].cast(field.type) for field in schema], schema=schema
    )


def test_the_orc_files_that_we_write_stay_byte_for_byte_the_same(tmp_path: Path) -> None:
    rows, n = values(), np.arange(ROWS)
    keys = StoredKeys(1 + n // 9_000, np.full(ROWS, 1 << 29), n * 2)
    changes = {
        "inserted": Keyed(KeyRun(7, 1 << 29, 5), 7, rows),
        "compacted": Keyed(keys, 1 + n // 9_000, rows),
        "deleted": Keyed(keys, 9, None, updated=n % 2 == 0),
        "plain": Keyed(None, 7, rows),
    }
    written = {}
    for name, change in changes.items():
        files, path = Files.of(str(tmp_path / name))
        stored = FileFormat() if name == "plain" else ACID_FORMAT
        writer = new_file(files, path, COLUMNS, stored, "uncompressed", name == "deleted")
        writer.put(change)
        assert writer.close() == ROWS
        written[name] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert written == EXPECTED
