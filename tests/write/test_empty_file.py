"""An emptied entity has a data file that every ORC reader accepts (P32)."""

from __future__ import annotations

from pathlib import Path

import pytest

from acid_platform.formats.file_access import count_rows
from acid_platform.formats.orc import ACID_COLUMNS, open_orc, orc_schema
from acid_platform.formats.orc.dump import events, metadata
from acid_platform.layout.file_entries import Footer
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.types import parse_columns
from acid_platform.scan.selection import select
from acid_platform.storage.files import Files
from acid_platform.write.publishing import write_empty_file
from tests.acid_files import AcidTable, P
from tests.notation import txns, write_ids

COLUMNS = parse_columns(
    "id int, c char(3), v varchar(9), d decimal(7,2), t timestamp, l timestamp with local time"
    " zone, day date, b binary, x double, ok boolean, s struct<a:array<int>,m:map<string,bigint>>"
)
FILES = Files.of("/")[0]


@pytest.mark.parametrize("codec", ["zlib", "snappy", "zstd", "lz4", "uncompressed", "lzo"])
def test_P32_the_file_has_the_six_columns_and_hives_keys(tmp_path: Path, codec: str) -> None:
    [record] = write_empty_file(FILES, str(tmp_path), COLUMNS, codec, ACID_FORMAT).files
    path = str(tmp_path / record.path)
    assert record.path == "bucket_00000"
    assert record.size == Path(path).stat().st_size > 3
    assert record.footer == Footer(0, acid=True, exact=True)
    found = metadata(FILES, path)
    assert (found["rows"], found["stripes"]) == (0, [])
    # Another engine's codec must not keep a table from being emptied.
    assert found["compression"] == {"uncompressed": "none", "lzo": "zlib"}.get(codec, codec)
    assert found["user_metadata"] == {
        "hive.acid.key.index": "",
        "hive.acid.stats": "0,0,0",
        "hive.acid.version": "2",
    }
    assert open_orc(FILES, path).has_key_index and list(events(FILES, path)) == []
    assert open_orc(FILES, path).schema.names == list(ACID_COLUMNS)
    kind = orc_schema(FILES, path)
    assert "c:char(3),v:varchar(9),d:decimal(7,2)" in kind and "map<string,bigint>" in kind


@pytest.mark.parametrize(
    "name, files", [("orc", 1), ("parquet", 1), ("text", 0), ("csv", 0), ("json", 0), ("avro", 0)]
)
def test_P32_an_insert_only_table_gets_a_file_where_its_format_has_an_empty_one(
    tmp_path: Path, name: str, files: int
) -> None:
    plain = FileFormat.of({"acid.format": name, "transactional_properties": "insert_only"})
    made = write_empty_file(FILES, str(tmp_path), COLUMNS, "zlib", plain)
    assert [path.name for path in tmp_path.iterdir()] == ["000000_0"] * files
    assert [(file.path, file.size > 0) for file in made.files] == [("000000_0", True)] * files
    if files:
        assert count_rows(FILES, str(tmp_path / "000000_0"), plain) == 0


def test_P32_an_emptied_base_is_selected_compacted_and_made_by_compaction(tmp_path: Path) -> None:
    table = AcidTable(tmp_path).inserts("d1", [(1, P, 0, "A"), (1, P, 1, "B")])
    base = tmp_path / "base_0000002"
    base.mkdir()
    write_empty_file(FILES, str(base), parse_columns("v string"), "zlib", ACID_FORMAT)
    assert table.values("2:M::") == [] and table.values("1:M::") == ["A", "B"]
    seen = select(FILES.entity(str(tmp_path)), write_ids("2:M::"), txns())
    assert [directory.path for directory in seen.obsolete] == ["delta_0000001_0000001_0000"]
    table.inserts("d3", [(3, P, 0, "C")]).deletes("D4", [(3, P, 0)], current=4)
    table.compact("major", "4:M::")
    # Without a file other engines would not see this base either.
    made = tmp_path / "base_0000004_v0000050"
    assert metadata(FILES, str(made / "bucket_00000"))["rows"] == 0
    assert {path.name for path in made.iterdir()} == {"bucket_00000", "_orc_acid_version"}
    assert table.values("4:M::") == []
    table.inserts("d5", [(5, P, 0, "D")])
    table.compact("major", "5:M::", txn_id=51)
    assert table.values("5:M::") == ["D"]
