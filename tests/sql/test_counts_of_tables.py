"""A count is the number of the rows that are read, whatever happened to the table, in both engines.

Each table is made by a story; of each condition the test states how many rows there are. Stories
that SQL tells are in tests/conformance/statements/more/counts.slt.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyorc
import pytest
from pyarrow import orc

from acid_platform import CorruptFile, Table, Warehouse
from acid_platform.engine.interface import Result
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import AcidTable, P, contents_of
from tests.cli.small import ACID
from tests.hive_tables import HERE

pytestmark = pytest.mark.slow
_numbers = count(1)


@dataclass(frozen=True)
class Story:
    """A table that is being made: `warehouse.sql` of `{t}`, or its handle."""

    warehouse: Warehouse
    name: str
    directory: Path
    """An empty one, for files that the table takes over."""
    open_until_the_end: ExitStack

    @property
    def table(self) -> Table:
        return self.warehouse.table(self.name)

    def sql(self, text: str) -> Any:
        return self.warehouse.sql(text.format(t=self.name, at=self.directory), engine="local")

    def numbers(self, columns: str = "id int", keys: str = "p int") -> None:
        """Ids 0 to 8: 0, 3 and 6 in the partition p = 0, 1, 4 and 7 in p = 1, others in p NULL."""
        self.sql(f"CREATE TABLE {{t}} ({columns}) PARTITIONED BY ({keys})")
        self.sql(
            "INSERT INTO {t} (id, p) VALUES (0, 0), (3, 0), (6, 0), (1, 1), (4, 1), (7, 1),"
            " (2, NULL), (5, NULL), (8, NULL)"
        )

    def key(self, number: int) -> tuple[int, int, int]:
        """The row id of the row with this `id`."""
        (row,) = self.table.to_arrow(["id"], f"id = {number}", row_id=True).to_pylist()
        return tuple(row["row__id"].values())

    def deleted(self, partition: str, keys: Sequence[tuple[int, int, int]]) -> None:
        self.committed(partition, lambda files, w: files.deletes(f"D{w}", keys, w))

    def committed(
        self,
        partition: str | None,
        write: Callable[[AcidTable, int], object],
        operation: RowOperation = RowOperation.DELETE,
    ) -> None:
        """A commit of a directory that another engine would have written."""
        kind = "delete_delta" if operation is RowOperation.DELETE else "delta"
        root = Path(self.table.location, partition or "")
        with self.warehouse.metastore.begin() as txn:
            lock = LockRequest(self.name, LockType.SHARED_WRITE, operation, partition)
            txn.lock([lock])
            write_id = txn.write_ids[self.name]
            write(AcidTable(root, "id int"), write_id)
            name = f"{kind}_{write_id:07d}_{write_id:07d}_0000"
            report = WriteReport(self.name, partition, operation, name, contents_of(root / name))
            txn.commit(CommitContents((report,)))


def deleted_twice(story: Story) -> None:
    story.numbers()
    one, other = story.key(0), story.key(3)
    for keys in ([one, one], [one], [other]):
        story.deleted("p=0", keys)


def deleted_without_statistics(story: Story) -> None:
    """As Hive's minor compaction writes, without a row index and its statistics."""
    story.numbers()

    def write(files: AcidTable, write_id: int) -> None:
        file = files.file(f"D{write_id}")
        file.parent.mkdir()
        with (
            file.open("wb") as stream,
            pyorc.Writer(stream, ACID, row_index_stride=0) as writer,
        ):
            writer.write((2, *story.key(6), write_id, None))

    story.committed("p=0", write)


def deleted_what_is_not_there(story: Story) -> None:
    """Keys of other buckets, statements, write ids, and beyond the rows of the file."""
    story.numbers()
    write_id, bucket, row = story.key(4)
    keys = [(write_id, bucket, 99), (write_id, bucket + 1, row), (7, bucket, row)]
    keys += [(write_id, bucket + (1 << 16), row), (write_id, bucket, row)]
    story.deleted("p=1", sorted(keys))


def inserted_by_another_engine(story: Story) -> None:
    """Keys with a gap, and two write ids in one file."""
    story.numbers()
    keys = [(w, P, row) for w in (2, 3) for row in (0, 2, 3)]

    def write(files: AcidTable, write_id: int) -> None:
        rows = [(write_id, P, row, 10 + row) for row in (0, 2, 3)]
        files.inserts(f"d{write_id}", rows)

    for _ in range(2):
        story.committed("p=1", write, RowOperation.INSERT)
    story.deleted("p=1", [*keys[:2], keys[-1]])


def original_files(story: Story) -> None:
    for p, rows in (("0", [0, 3, 6]), ("1", [1, 4, 7])):
        AcidTable(story.directory / f"p={p}", "id int").raw("o", rows)
    story.warehouse.adopt_table(
        story.name, story.directory, schema="id int", partitioned_by=["p int"]
    )
    story.sql("DELETE FROM {t} WHERE id = 4; INSERT INTO {t} VALUES (9, 0)")
    story.sql("DELETE FROM {t} WHERE id = 9; UPDATE {t} SET id = 30 WHERE id = 3")


def aborted(story: Story) -> None:
    story.numbers()
    story.sql("DELETE FROM {t} WHERE id = 0")
    with pytest.raises(ZeroDivisionError), story.warehouse.transaction() as txn:
        txn.table(story.name).delete("id = 3", engine="local")
        txn.table(story.name).insert([{"id": 30, "p": 0}])
        raise ZeroDivisionError
    story.sql("DELETE FROM {t} WHERE id = 6")


def still_open(story: Story) -> None:
    story.numbers()
    txn = story.open_until_the_end.enter_context(story.warehouse.transaction())
    txn.table(story.name).delete("id = 3", engine="local")
    txn.table(story.name).insert([{"id": 30, "p": 0}])
    story.sql("DELETE FROM {t} WHERE id = 7; INSERT INTO {t} VALUES (31, 0)")


def made_again(story: Story) -> None:
    """Another table at the same path, with files of the same names and sizes."""
    for gone in (0, 3):
        story.sql("DROP TABLE IF EXISTS {t}")
        story.numbers()
        story.sql(f"DELETE FROM {{t}} WHERE id = {gone}")
        assert story.table.count("p = 0") == 2


def of_doubles(story: Story) -> None:
    story.sql(
        "CREATE TABLE {t} (id int) PARTITIONED BY (p double); INSERT INTO {t} VALUES (0, 0.0D),"
        " (1, 2.0D), (2, 3.0D), (3, NULL), (4, 4.0D)"
    )


def external(story: Story) -> None:
    for number in range(2):
        (story.directory / f"p={number}").mkdir()
        (story.directory / f"p={number}" / "rows").write_text("1\n2\n\n"[: 4 + number])
    story.sql(
        "CREATE EXTERNAL TABLE {t} (id int) PARTITIONED BY (p int)"
        " ROW FORMAT DELIMITED STORED AS TEXTFILE LOCATION '{at}'; MSCK REPAIR TABLE {t}"
    )


def with_a_stray_file(story: Story) -> None:
    """A file that no commit recorded, in a directory of the table."""
    story.numbers()
    story.sql("DELETE FROM {t} WHERE id = 0")
    (directory,) = Path(story.table.location, "p=0").glob("delta_*")
    shutil.copy(directory / "bucket_00000", directory / "bucket_00001")


@dataclass(frozen=True)
class Case:
    make: Callable[[Story], object]
    counts: Mapping[str, int]
    """The number of rows by condition; the empty one is that of the query without WHERE."""
    handle: bool = True
    """Whether a Table of Python can be asked too."""


NULLS = {
    "p IS NULL": 3,
    "p <=> NULL": 3,
    "p = NULL": 0,
    "p <> 1": 3,
    "NOT p = 1": 3,
    "p IN (1, NULL)": 3,
    "NOT p IN (1, NULL)": 0,
    "p IS NOT NULL OR p IS NULL": 9,
    "p > 7": 0,
    "p >= 0.5": 3,
    "p = '1'": 3,
}
CASES = {
    "NULL partitions": Case(Story.numbers, {"": 9} | NULLS),
    "deleted twice": Case(deleted_twice, {"": 7, "p = 0": 1, "p = 0 AND id > 0": 1}),
    "deleted without statistics": Case(deleted_without_statistics, {"": 8, "p < 1": 2}),
    "deleted what is not there": Case(deleted_what_is_not_there, {"": 8, "p = 1": 2}),
    "inserted by another engine": Case(inserted_by_another_engine, {"": 12, "p = 1": 6}),
    "original files": Case(original_files, {"": 5, "p = 0": 3, "p = 1": 2, "id = 30": 1}),
    "aborted": Case(aborted, {"": 7, "p = 0": 1}),
    "still open": Case(still_open, {"": 9, "p = 0": 4, "p = 1": 2}),
    "made again": Case(made_again, {"": 8, "p = 0": 2, "id = 0": 1, "id = 3": 0}),
    "doubles": Case(
        of_doubles,
        {"p = 0": 1, "p > 1": 3, "p = '4'": 1, "p >= 3": 2, "p IS NULL": 1},
    ),
    "external": Case(external, {"": 5, "p = 0": 2, "p = 1": 3}, handle=False),
    "a stray file": Case(with_a_stray_file, {"": 8, "p = 0": 2}),
}


def rows(warehouse: Warehouse, query: str) -> list[tuple[object, ...]]:
    answer = warehouse.sql(query)
    assert isinstance(answer, Result)
    return [*answer.collect()]


def assert_counts(warehouse: Warehouse, name: str, case: Case) -> None:
    for condition, expected in case.counts.items():
        where = f"{name} AS t{f' WHERE {condition}' if condition else ''}"
        counts = [
            rows(warehouse, f"SELECT count(*) FROM {where}")[0][0],
            rows(warehouse, f"SELECT count(*), 1 FROM {where}")[0][0],
            len(rows(warehouse, f"SELECT * FROM {where}")),
        ]
        if case.handle:
            counts.append(warehouse.table(name).count(condition or None))
        assert counts == [expected] * len(counts), condition or "all"


@pytest.mark.parametrize("case", CASES)
def test_a_count_is_the_number_of_rows(warehouse: Warehouse, tmp_path: Path, case: str) -> None:
    with ExitStack() as stack:
        story = Story(warehouse, f"default.t{next(_numbers)}", tmp_path, stack)
        CASES[case].make(story)
        assert_counts(warehouse, story.name, CASES[case])


def hive_snapshots() -> list[Any]:
    return [
        pytest.param(path.parent, snapshot, id=f"{path.parent.name}-{name}")
        for path in sorted(HERE.glob("*/expected.json"))
        for name, snapshot in json.loads(path.read_text())["snapshots"].items()
        if "error" not in snapshot
    ]


@pytest.mark.parametrize(("root", "snapshot"), hive_snapshots())
def test_a_count_of_what_hive_wrote(
    warehouse: Warehouse, tmp_path: Path, root: Path, snapshot: dict[str, Any]
) -> None:
    """Its delete deltas and compactions, with Hive's footers, and originals."""
    copy = shutil.copytree(
        root, tmp_path / "t", ignore=shutil.ignore_patterns("expected.json", "stray*")
    )
    name = f"default.t{next(_numbers)}"
    invalid = ",".join(map(str, snapshot["invalid_write_ids"]))
    keys = ["p string"] if [*copy.glob("p=*")] else []
    warehouse.adopt_table(
        name,
        copy,
        partitioned_by=keys,
        snapshot=f"{name}:{snapshot['high_watermark']}:{(1 << 63) - 1}::{invalid}",
    )
    assert_counts(warehouse, name, Case(Story.numbers, {"": snapshot["rows"]}))
    if keys:
        groups = rows(warehouse, f"SELECT p, count(*) FROM {name} GROUP BY p")
        counts = {
            "p IS NULL" if p is None else f"p = '{p}'": int(str(number)) for p, number in groups
        }
        assert_counts(warehouse, name, Case(Story.numbers, counts))


def test_a_transaction_counts_its_own_changes(warehouse: Warehouse, tmp_path: Path) -> None:
    story = Story(warehouse, f"default.t{next(_numbers)}", tmp_path, ExitStack())
    story.numbers()
    with warehouse.transaction() as txn:
        table = txn.table(story.name)
        table.delete("id = 0", engine="local")
        table.insert([{"id": 30, "p": 0}, {"id": 31, "p": 0}])
        table.delete("id = 30", engine="local")
        counts = [
            txn.sql(f"SELECT count(*) FROM {story.name} WHERE p = 0").collect(),  # type: ignore[union-attr]
            txn.sql(f"SELECT count(*) FROM {story.name}").collect(),  # type: ignore[union-attr]
        ]
        assert counts == [[(3,)], [(9,)]]
        assert [table.count("p = 0"), table.count()] == [3, 9]
        assert story.table.count() == 9 and story.table.count("id = 0") == 1
    assert_counts(warehouse, story.name, Case(Story.numbers, {"": 9, "p = 0": 3, "id = 0": 0}))


@pytest.mark.parametrize("kind", ["delta", "delete_delta"])
@pytest.mark.parametrize("lost", [0, 7], ids=["whole", "shorter"])
def test_a_count_of_files_that_changed_is_refused(
    warehouse: Warehouse, tmp_path: Path, kind: str, lost: int
) -> None:
    story = Story(warehouse, f"default.t{next(_numbers)}", tmp_path, ExitStack())
    story.numbers()
    story.sql("DELETE FROM {t} WHERE id = 0")
    assert story.table.count() == 8
    (file,) = Path(story.table.location).glob(f"p=0/{kind}_*/bucket_00000")
    if lost:
        file.write_bytes(file.read_bytes()[:-lost])
    else:
        orc.write_table(orc.read_table(str(file)).slice(0, 0), str(file))
    for where in ("", " WHERE p = 0"):
        for query in (f"SELECT count(*) FROM {story.name}", f"SELECT * FROM {story.name}"):
            with pytest.raises(CorruptFile, match=file.parent.name):
                rows(warehouse, query + where)
    assert rows(warehouse, f"SELECT count(*) FROM {story.name} WHERE p = 1") == [(3,)]
