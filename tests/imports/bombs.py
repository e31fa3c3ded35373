"""Parquet files of some hundred bytes, written by hand, that take gigabytes if they are believed,
and sound ones of little but NULL.

`python -m tests.imports.bombs DIRECTORY` reads each in all ways and prints, in JSON, what
became of it, and the most memory that the process had by then.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

MANY = 300_000_000


def varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def number(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


def text(value: str) -> bytes:
    return varint(len(value)) + value.encode()


def struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Each field has a number, a type and a value."""
    return b"".join(bytes([kind]) + number(at) + value for at, kind, value in fields) + b"\0"


def array(kind: int, *values: bytes) -> bytes:
    return bytes([0xF0 | kind]) + varint(len(values)) + b"".join(values)


I32, I64, TEXT, LIST, STRUCT = 5, 6, 8, 9, 12
INT64, BYTES = 2, 6


def page(
    body: bytes, values: int, encoding: int = 0, size: int | None = None, kind: int = 0
) -> bytes:
    """A page of values, or of a dictionary."""
    inner = [(1, I32, number(values)), (2, I32, number(encoding))]
    if kind == 0:
        inner += [(3, I32, number(3)), (4, I32, number(3))]
    said = struct(*inner)
    size = len(body) if size is None else size
    lengths = ((2, I32, number(size)), (3, I32, number(len(body))))
    field = (5 if kind == 0 else 7, STRUCT, said)
    return struct((1, I32, number(kind)), *lengths, field) + body


def levels(count: int, value: int) -> bytes:
    """One level that all values have."""
    run = varint(count << 1) + bytes([value])
    return len(run).to_bytes(4, "little") + run


def element(name: str, *fields: tuple[int, int, bytes]) -> bytes:
    return struct(*sorted([*fields, (4, TEXT, text(name))]))


OPTIONAL, REPEATED = (3, I32, number(1)), (3, I32, number(2))


def file(
    pages: bytes,
    values: int,
    rows: int = 1,
    kind: int = INT64,
    nested: bool = False,
    metadata: bool = True,
    more: tuple[tuple[int, int, bytes], ...] = (),
    columns: int = 1,
) -> bytes:
    """A file with so many columns of the same pages. `more` are fields of their metadata."""
    root = element("schema", (5, I32, number(columns)))
    path = ("v", "list", "element") if nested else ("v",)
    if nested:
        listed = ((3, I32, number(1)), (5, I32, number(1)), (6, I32, number(3)))
        schema = [
            element("v", *listed),
            element("list", REPEATED, (5, I32, number(1))),
            element("element", (1, I32, number(kind)), OPTIONAL),
        ]
    else:
        names = ["v", *(f"v{index}" for index in range(1, columns))]
        of_text = [(6, I32, number(0))] if kind == BYTES else []
        schema = [element(name, (1, I32, number(kind)), OPTIONAL, *of_text) for name in names]
    chunks = []
    for index in range(columns):
        names_of_path = path if not index else (f"v{index}",)
        described = struct(
            (1, I32, number(kind)),
            (2, LIST, array(I32, number(0), number(3))),
            (3, LIST, array(TEXT, *map(text, names_of_path))),
            (4, I32, number(0)),
            (5, I64, number(values)),
            (6, I64, number(len(pages))),
            (7, I64, number(len(pages))),
            (9, I64, number(4 + index * len(pages))),
            *more,
        )
        fields = [(2, I64, number(4)), (3, STRUCT, described)]
        chunks.append(struct(*fields[: 1 + metadata]))
    group = struct(
        (1, LIST, array(STRUCT, *chunks)),
        (2, I64, number(len(pages) * columns)),
        (3, I64, number(rows)),
    )
    footer = struct(
        (1, I32, number(1)),
        (2, LIST, array(STRUCT, root, *schema)),
        (3, I64, number(rows)),
        (4, LIST, array(STRUCT, group)),
    )
    content = b"PAR1" + pages * columns + footer
    return content + len(footer).to_bytes(4, "little") + b"PAR1"


def one_row(count: int, said: int) -> bytes:
    """A list of as many values in the first row; the footer says how many there are."""
    first = (2).to_bytes(4, "little") + varint(1 << 1) + b"\0"
    ups = first[4:] + varint((count - 1) << 1) + b"\1"
    repetition = len(ups).to_bytes(4, "little") + ups
    indexes = b"\1" + varint(count << 1) + b"\0"
    body = repetition + levels(count, 3) + indexes
    pages = page((7).to_bytes(8, "little"), 1, kind=2) + page(body, count, 8)
    return file(pages, said, nested=True)


def deltas(encoding: int, total: int) -> bytes:
    """A text whose lengths are said to be so many, all of them the same."""
    lengths = varint(1 << 30) + varint(1) + varint(total) + number(0) + number(0) + b"\0"
    body = levels(1, 1) + lengths * (encoding - 5) + bytes(8)
    return file(page(body, 1, encoding), 1, kind=BYTES)


def nulls(rows: int, columns: int = 1) -> bytes:
    return file(page(levels(rows, 0), rows), rows, rows, columns=columns)


def twice(content: bytes, small: int, large: int) -> bytes:
    """The number of values of a page is there twice, the second time as a type that Arrow skips."""
    said = bytes([I32]) + number(1) + number(large)
    length = int.from_bytes(content[-8:-4], "little")
    pages, footer = content[4 : -8 - length], content[-8 - length : -8]
    changed = pages.replace(said, said + bytes([I64]) + number(1) + number(small), 1)
    assert changed != pages
    old, new = number(len(pages)), number(len(changed))
    return b"PAR1" + changed + footer.replace(old, new) + content[-8:]


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a list in the first row": (lambda: one_row(MANY, MANY), "would hold"),
    "a list that the footer denies": (lambda: one_row(MANY, 1), "would hold"),
    "its header says it twice": (lambda: twice(one_row(MANY, 1), 1, MANY), "occurs twice"),
    "a page of 1.8 GB": (
        lambda: file(page(b"\0", 1, size=1_800_000_000), 1),
        "would take",
    ),
    "a dictionary of 2 GB": (
        lambda: file(page(b"\0", 1 << 27, kind=2) + page(levels(1, 0), 1), 1),
        "would take",
    ),
    "lengths of texts": (lambda: deltas(6, 1 << 30), "it says that it has"),
    "lengths of prefixes": (lambda: deltas(7, 1 << 30), "it says that it has"),
    "a dictionary before the file": (
        lambda: file(page(b"\0", 1, size=1_800_000_000), 1, more=((11, I64, number(-9)),)),
        "would take",
    ),
    "no metadata of the column": (lambda: file(b"", 1, metadata=False), "encrypted"),
    "more NULL than can be": (lambda: nulls(1 << 30), "would"),
}


def orc_of_nulls(rows: int, columns: int) -> bytes:
    import pyarrow as pa
    from pyarrow import orc

    content = io.BytesIO()
    batch = pa.table({f"c{n}": pa.nulls(1 << 20, pa.int64()) for n in range(columns)})
    with orc.ORCWriter(content, stripe_size=1 << 34, compression="zstd") as writer:
        for at in range(0, rows, 1 << 20):
            writer.write(batch.slice(0, rows - at))
    return content.getvalue()


READ: dict[str, tuple[str, int, Callable[[int], bytes]]] = {
    "NULL in one column": ("parquet", MANY // 8, nulls),
    "of twenty": ("parquet", MANY // 20, lambda rows: nulls(rows, 20)),
    "of twenty in a stripe": ("orc", MANY // 20, lambda rows: orc_of_nulls(rows, 20)),
}
"""Files that are right, and have to be read in pieces: their formats and rows."""


def highest_memory() -> int:
    """MiB of this process. `ru_maxrss` would be at least what the process had that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) >> 10


def main(directory: Path) -> None:
    from acid_platform import FolderSource
    from acid_platform.errors import AcidError
    from acid_platform.formats.file_access import FilePath, open_file
    from acid_platform.handles.folder_source import parquet_rows
    from acid_platform.layout.types import parse_columns
    from acid_platform.storage.files import Files

    def decoded(path: str) -> int:
        files, inside = Files.of(path)
        opened = open_file(files, FilePath(inside, Path(path).suffix[1:]), strange=True)
        pieces = range(len(opened.piece_rows))
        return sum(len(opened.decode(piece, opened.names)[opened.names[0]]) for piece in pieces)

    def imported(path: str) -> int:
        source = FolderSource(path, "parquet")
        return sum(batch.num_rows for batch in source.batches(source.rows([])))

    def in_memory(path: str) -> int:
        import pyarrow as pa

        content = pa.BufferReader(Path(path).read_bytes())
        return parquet_rows(content, "a.parquet", parse_columns("v bigint")).num_rows

    for path in sorted(directory.iterdir()):
        ways = [decoded, *([imported] if path.suffix == ".parquet" else [])]
        ways += [in_memory] if path.stem in BOMBS else []
        for way in ways:
            try:
                told: object = way(str(path))
            except AcidError as error:
                told = str(error)
            print(json.dumps([path.stem, way.__name__, told, highest_memory()]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
