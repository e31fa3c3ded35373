"""Files of a few bytes that take gigabytes where they are believed (P65)."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import random
import subprocess
import sys
import zoneinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest
from pyarrow import parquet

from acid_platform.errors import CorruptFile
from acid_platform.formats import parquet_pages, thrift
from acid_platform.formats.parquet_files import batches_of, open_parquet
from tests.imports import bombs


@pytest.mark.more
def test_P65_nothing_of_a_parquet_file_is_decoded_before_it_is_looked_at(tmp_path: Path) -> None:
    """In a process of its own, whose memory is measured; each of the bombs would take 2 to 8 GB."""
    for name, (make, _) in bombs.BOMBS.items():
        (tmp_path / f"{name}.parquet").write_bytes(make())
    assert max(file.stat().st_size for file in tmp_path.iterdir()) < 3000
    for name, (suffix, rows, sound) in bombs.READ.items():
        (tmp_path / f"{name}.{suffix}").write_bytes(sound(rows))
    assert max(file.stat().st_size for file in tmp_path.iterdir()) < 100_000
    run = [sys.executable, "-m", "tests.imports.bombs", str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for name, (_, refusal) in bombs.BOMBS.items():
        found = [text for bomb, _, text, _ in told if bomb == name]
        assert len(found) == 3
        assert all(refusal in str(text) for text in found), (name, found)
    counts = {name: {rows for bomb, _, rows, _ in told if bomb == name} for name in bombs.READ}
    assert counts == {name: {rows} for name, (_, rows, _) in bombs.READ.items()}
    assert max(most for *_, most in told) < 1300, told


class Counting(io.BytesIO):
    """A file of an object store, which counts requests."""

    asked = 0

    def size(self) -> int:
        return len(self.getvalue())

    def read(self, length: int | None = -1) -> bytes:
        self.asked += 1
        return super().read(length)

    def read_at(self, length: int, start: int) -> bytes:
        self.seek(start)
        return self.read(length)


def sound() -> tuple[bytes, pa.Table]:
    content = io.BytesIO()
    rows = pa.table({f"c{n}": [f"{n} {i}" for i in range(20_000)] for n in range(5)})
    parquet.write_table(rows, content, row_group_size=10_000, data_page_size=1000)
    return content.getvalue(), rows


def test_P65_pages_of_a_parquet_file_in_a_store_are_looked_at_without_more_requests() -> None:
    content, rows = sound()
    far: Any = Counting(content)
    file = open_parquet(far, "bucket/a.parquet")
    assert (file.num_row_groups, far.asked) == (2, 1)
    assert pa.Table.from_batches(batches_of(file, rows.column_names)).equals(rows)
    assert far.asked == 3, "one for each row group"
    for path in ("bucket/a.parquet", "s3://bucket/a.parquet"):
        bomb: Any = Counting(bombs.one_row(1 << 28, 1))
        with pytest.raises(CorruptFile, match="would hold"):
            list(batches_of(open_parquet(bomb, path), ["v"]))


def test_P65_a_row_group_of_little_but_null_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acid_platform.formats.parquet import ParquetData
    from acid_platform.storage.files import Files

    values = pa.array([None] * 4000 + [*range(100)] + [None] * 4900, pa.int64())
    rows = pa.table({"a": values, "b": values, "c": pa.array([["x"]] * len(values))})
    parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=4500, compression="zstd")
    monkeypatch.setattr(parquet_pages, "LARGEST_PIECE", 1 << 15)
    monkeypatch.setattr(parquet_pages, "MOST_UNPACKED", 1)
    files, path = Files.of(str(tmp_path / "a.parquet"))

    def read(order: Any, *columns: str) -> pa.Table:
        file = ParquetData(files, path)
        assert len(file.piece_rows) > 10 and max(file.piece_rows) * 16 <= 1 << 13
        pieces = {n: file.decode(n, columns) for n in order(range(len(file.piece_rows)))}
        return pa.concat_tables(pa.table(pieces[n]) for n in sorted(pieces))

    for columns in (("a",), ("b", "a")):
        assert read(list, *columns).equals(rows.select(columns))
        assert read(reversed, *columns).equals(rows.select(columns))
    file = ParquetData(files, path)
    each = [[file.decode(n, [name])[name] for name in "ab"] for n in range(len(file.piece_rows))]
    assert pa.chunked_array([a for a, _ in each]).equals(pa.chunked_array([b for _, b in each]))


@pytest.mark.parametrize("clock", [False, True])
def test_P65_a_stripe_of_little_but_null_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: bool
) -> None:
    """Also with times of the writer's clock, and days before the Gregorian calendar."""
    from acid_platform.formats.orc import open_orc, tail
    from acid_platform.formats.orc import strange_files as pieces
    from acid_platform.storage.files import Files

    day = datetime.datetime(1999, 12, 31) if clock else datetime.date(1066, 10, 14)
    kind, zone = "timestamp" if clock else "date", zoneinfo.ZoneInfo("America/New_York")
    with (tmp_path / "a.orc").open("wb") as content:
        row = "struct<a:bigint,b:struct<x:string,y:bigint>,c:array<string>,d:" + kind + ">"
        writer = pyorc.Writer(content, row, stripe_size=1 << 16, batch_size=3000, timezone=zone)
        for n in range(9000):
            some = 4000 <= n < 4100
            text = hashlib.shake_128(bytes([n % 256])).hexdigest(1000) * some
            writer.write((n if some else None, (text, n) if some else None, ["v"] * some, day))
        writer.close()
    files, path = Files.of(str(tmp_path / "a.orc"))
    whole = open_orc(files, path)
    assert len(whole.piece_rows) == 2
    names = ["a", "b", "c", "d"]
    rows = pa.concat_tables(pa.table(whole.decode(n, names)) for n in (0, 1))
    monkeypatch.setattr(pieces, "LARGEST_PIECE", 1 << 16)
    monkeypatch.setattr(tail, "LARGEST_PIECE", 1 << 16)
    monkeypatch.setattr(tail, "MOST_UNPACKED", 1)

    def read(order: Any, *columns: str) -> pa.Table:
        file = open_orc(files, path)
        assert len(file.piece_rows) > 10 and sum(file.piece_rows) == 9000
        found = {n: file.decode(n, columns) for n in order(range(len(file.piece_rows)))}
        return pa.concat_tables(pa.table(found[n]) for n in sorted(found))

    for columns in (["a"], ["c", "a"], names):
        assert read(list, *columns).equals(rows.select(columns))
        assert read(reversed, *columns).equals(rows.select(columns))
    file = open_orc(files, path)
    each = [[file.decode(n, [name])[name] for name in "ad"] for n in range(len(file.piece_rows))]
    assert pa.chunked_array([a for a, _ in each]).equals(rows["a"])
    assert pa.chunked_array([d for _, d in each]).equals(rows["d"])
    fields = [file.decode(n, ["b.y"])["b.y"] for n in range(len(file.piece_rows))]
    known = pa.concat_arrays([whole.decode(n, ["b.y"])["b.y"] for n in (0, 1)])
    assert pa.concat_arrays(fields).equals(known)


def test_P65_the_longest_text_of_a_dictionary_is_that_of_all_its_lengths() -> None:
    """Also where texts have zeros, or 256 bytes and more, and of bytes that are no dictionary."""
    chance = random.Random(65)

    def one_by_one(body: bytes) -> int:
        longest = at = 0
        while at < len(body):
            length = int.from_bytes(body[at : at + 4], "little")
            longest, at = max(longest, length), at + 4 + length
        return longest

    for _ in range(3000):
        texts = (
            bytes(chance.choices([0, 0, 65, 255], k=chance.choice([0, 1, 2, 3, 5, 300])))
            for _ in range(chance.randint(0, 6))
        )
        body = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        body = body[: len(body) - chance.choice([0, 0, 1])] + bytes(chance.choice([0, 0, 3]))
        assert parquet_pages._longest_of(body) == one_by_one(body), body


def test_P65_a_footer_is_read_once_for_all_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    content, _ = sound()
    read: list[int] = []

    class Told(thrift.ThriftBytes):
        def struct(self, shape: thrift.Shape, depth: int = 0) -> dict[int, Any]:
            read.extend([1] * (shape is parquet_pages._FOOTER))
            return super().struct(shape, depth)

    monkeypatch.setattr(parquet_pages, "ThriftBytes", Told)
    parquet_pages._groups.clear()
    for _ in range(3):
        assert len(open_parquet(pa.BufferReader(content), "a.parquet").bounds.groups) == 2
    shorter = content[:100] + content[-(int.from_bytes(content[-8:-4], "little") + 8) :]
    assert read == [1]
    with pytest.raises(CorruptFile, match="ends after byte"):
        _ = open_parquet(pa.BufferReader(shorter), "a.parquet").bounds.groups
