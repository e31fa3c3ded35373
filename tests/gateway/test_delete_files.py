"""Delete events that Trino puts into one file stand in the files of their rows' buckets (P45)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from acid_platform import CorruptFile, Warehouse
from acid_platform.gateway.external_writes import distribute
from acid_platform.layout.types import parse_columns
from acid_platform.services.fsck import examine
from acid_platform.storage.files import Files
from tests.acid_files import AcidTable, P
from tests.gateway.clients import COLUMNS, INSERT, UPDATE, begun, files, m

Key = tuple[int, int, int]
ONE = 1 << 16
"""Added to a bucket property, it gives that of the next bucket."""


def events(directory: Path) -> dict[str, list[Key]]:
    """The deleted keys in each file that readers see."""
    found = {}
    for path in sorted(directory.glob("bucket_*")):
        rows = orc.ORCFile(str(path)).read().to_pylist()
        assert {row["operation"] for row in rows} == {2}
        assert {row["currentTransaction"] for row in rows} == {9}
        found[path.name] = [(r["originalTransaction"], r["bucket"], r["rowId"]) for r in rows]
    return found


def moved(root: Path) -> None:
    listed, where = Files.of(str(root))
    distribute(listed, f"{where}/{DIRECTORY}", 9, parse_columns(COLUMNS), "zlib")


DIRECTORY = "delete_delta_0000009_0000009_0000"


def test_P45_every_engine_finds_the_deletes_of_trino(client: Any, warehouse: Warehouse) -> None:
    """Trino calls the file of all of them bucket_00000, in no order of their buckets."""
    table = warehouse.create_table("db.mixed", "id int, v string")
    where = files(client, table.name)
    statement, write_id, _ = begun(client, table.name, INSERT)
    for number in range(4):
        rows = [(write_id, P + number * ONE, row, 10 * number + row, "a") for row in range(2)]
        where.inserts(f"d{write_id}/bucket_{number:05d}", rows)
    statement.commit()
    statement, second, _ = begun(client, table.name, UPDATE)
    gone = [(write_id, P + number * ONE, 1) for number in (1, 0, 3)]
    where.deletes(f"D{second}", gone, second)
    where.inserts(f"d{second}", [(second, P, row, 100 + row, "new") for row in range(3)])
    statement.commit()
    directory = where.file(f"D{second}").parent
    for number in (0, 1, 3):
        (row,) = orc.ORCFile(str(directory / f"bucket_{number:05d}")).read().to_pylist()
        assert row["bucket"] == P + number * ONE
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 10, 20, 21, 30, 100, 101, 102]
    found = examine(warehouse.metastore, [table.name])
    assert [str(one) for one in found.findings if str(one).startswith("error")] == []


def test_P45_a_file_without_events_of_its_own_bucket_goes(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, COLUMNS)
    table.deletes("D9", [(1, P + 2 * ONE, 4), (1, P + ONE, 7)], 9)
    moved(tmp_path)
    assert events(tmp_path / DIRECTORY) == {
        "bucket_00001": [(1, P + ONE, 7)],
        "bucket_00002": [(1, P + 2 * ONE, 4)],
    }


def test_P45_a_checksum_of_the_old_content_goes(tmp_path: Path) -> None:
    """Trino's local file system writes it, and would refuse the new content."""
    table = AcidTable(tmp_path, COLUMNS)
    table.deletes("D9", [(1, P, 4), (1, P + ONE, 7)], 9)
    (tmp_path / DIRECTORY / ".bucket_00000.crc").write_bytes(b"crc")
    moved(tmp_path)
    left = sorted(path.name for path in (tmp_path / DIRECTORY).iterdir())
    assert left == ["bucket_00000", "bucket_00001"]


def test_P45_files_of_the_right_bucket_stay_as_they_are(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, COLUMNS)
    table.deletes("D9", [(1, P, 4), (2, P + 3, 4)], 9)
    table.deletes("D9/bucket_00001", [(1, P + ONE, 4)], 9)
    before = {path: path.read_bytes() for path in (tmp_path / DIRECTORY).iterdir()}
    moved(tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / DIRECTORY).iterdir()} == before


def test_P45_bucket_properties_of_two_versions_are_told_apart(tmp_path: Path) -> None:
    """Hive 2 wrote the bare number: between 0 and the property of bucket 0 lie all others."""
    AcidTable(tmp_path, COLUMNS).deletes("D9", [(1, 0, 4), (1, 1, 4), (1, P, 4)], 9)
    moved(tmp_path)
    assert events(tmp_path / DIRECTORY) == {
        "bucket_00000": [(1, 0, 4), (1, P, 4)],
        "bucket_00001": [(1, 1, 4)],
    }


def test_P45_two_mixed_files_are_refused(tmp_path: Path) -> None:
    table = AcidTable(tmp_path, COLUMNS)
    table.deletes("D9", [(1, P, 4), (1, P + ONE, 4)], 9)
    table.deletes("D9/bucket_00001", [(1, P, 5), (1, P + ONE, 5)], 9)
    with pytest.raises(CorruptFile, match="both have delete events of other buckets"):
        moved(tmp_path)


class Died(Exception):
    pass


KEYS = st.builds(
    lambda write_id, bucket, row: (write_id, P + bucket * ONE, row),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 4),
)


@pytest.mark.more
@settings(max_examples=60)
@given(
    mixed=st.lists(KEYS, min_size=1, unique=True),
    other=st.lists(st.integers(5, 9), unique=True),
    death=st.integers(0, 6),
)
def test_P45_an_interrupted_move_loses_nothing_and_is_repeated(
    mixed: list[Key], other: list[int], death: int
) -> None:
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        root = Path(made)
        table = AcidTable(root, COLUMNS)
        table.deletes("D9", mixed, 9)
        if other:
            table.deletes("D9/bucket_00002", [(1, P + 2 * ONE, row) for row in other], 9)
        wanted = {*mixed, *((1, P + 2 * ONE, row) for row in other)}
        steps = iter(range(100))
        for name in ("rename", "delete_file"):
            done = getattr(Files, name)

            def dying(self: Files, *paths: str, done: Any = done) -> None:
                if next(steps) == death:
                    raise Died
                done(self, *paths)

            patch.setattr(Files, name, dying)
        try:
            moved(root)
        except Died:
            known = events(root / DIRECTORY).values()
            assert {key for keys in known for key in keys} == wanted
            moved(root)
        for name, keys in events(root / DIRECTORY).items():
            number = int(name.removeprefix("bucket_"))
            assert sorted(keys) == sorted(key for key in wanted if key[1] == P + number * ONE)
            assert keys
            wanted -= set(keys)
        assert wanted == set()


def test_P45_an_event_of_another_transaction_refuses_the_commit(
    client: Any, warehouse: Warehouse
) -> None:
    table = warehouse.create_table("db.foreign_deletes", "id int, v string")
    statement, write_id, where = begun(client, table.name, UPDATE)
    keys = [(1, P, 0), (1, P + ONE, 0)]
    where.deletes(f"D{write_id}", keys, [write_id, write_id + 1])
    with pytest.raises(m.TxnAbortedException, match="currentTransaction"):
        statement.commit()
