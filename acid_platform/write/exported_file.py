"""One file of INSERT OVERWRITE DIRECTORY, which belongs to no table.

Delimited text is written as LazySimpleSerDe writes it: what `scan.text_lines` reads.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.errors import InvalidExpression
from acid_platform.formats.orc import OrcWriter, to_be_stored
from acid_platform.formats.parquet import ParquetWriter
from acid_platform.layout.external_formats import ESCAPE, NULL, depth, separators
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column, HiveType
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.coercion import java_float


class TextWriter:
    """Writes one file; without rows no file is written.

    Batches have the columns' types (`arrow_type`), in order. `write` raises InvalidExpression for a
    text that would be read otherwise: with a delimiter and no escape, a line end, or the text that
    stands for NULL.
    """

    def __init__(
        self, files: Files, path: str, columns: Sequence[Column], stored: FileFormat
    ) -> None:
        self.rows = 0
        self._files, self.path, self._columns = files, path, columns
        self._separators, self._null = separators(stored), stored.options[NULL]
        self._escape = stored.options[ESCAPE]
        deepest = max((depth(column.type) for column in columns), default=0)
        self._special = frozenset(self._separators[: deepest + 1] + self._escape)
        self._stream: pa.NativeFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        if not batch.num_rows:
            return
        if self._stream is None:
            self._stream = self._files.system.open_output_stream(self.path)
        texts = [
            [self._text(value, column, column.type, 1) for value in _python(values)]
            for values, column in zip(batch.columns, self._columns, strict=True)
        ]
        lines = map(self._separators[0].join, zip(*texts, strict=True))
        self._stream.write("".join(f"{line}\n" for line in lines).encode())
        self.rows += batch.num_rows

    def close(self) -> int:
        """Finish the file; returns its row count."""
        self.give_up()
        return self.rows

    def give_up(self) -> None:
        """Close the incomplete file."""
        if self._stream is not None:
            self._stream.close()

    def _text(self, value: Any, column: Column, kind: HiveType, level: int) -> str:
        if value is None:
            return self._null
        match kind.kind:
            case "array":
                child = kind.children[0][1]
                parts = [self._text(part, column, child, level + 1) for part in value]
                return self._separators[level].join(parts)
            case "struct":
                parts = [
                    self._text(value[name], column, child, level + 1)
                    for name, child in kind.children
                ]
                return self._separators[level].join(parts)
            case "map":
                (_, key), (_, item) = kind.children
                between = self._separators[level + 1]
                parts = [
                    self._text(name, column, key, level + 2)
                    + between
                    + self._text(part, column, item, level + 2)
                    for name, part in value
                ]
                return self._separators[level].join(parts)
            case "string" | "char" | "varchar":
                return self._escaped(value, column)
        return hive_value(value, kind)

    def _escaped(self, text: str, column: Column) -> str:
        lost = text == self._null or "\n" in text or "\r" in text
        special = not self._special.isdisjoint(text)
        if lost or (special and not self._escape):
            raise InvalidExpression(
                f"column {column.name}: the text {text[:60]!r} can't be written, since it would be"
                " read otherwise: it has a delimiter or a line end, or stands for NULL; write"
                " ESCAPED BY, other delimiters, or STORED AS ORC"
            )
        if not special:
            return text
        return "".join(self._escape + one if one in self._special else one for one in text)


def _python(values: pa.Array) -> list[Any]:
    """The values as Python's; floats of 32 bits stay such, which are written shorter."""
    if values.type == pa.float32():
        nulls = values.is_null().to_pylist()
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        return [None if null else number for number, null in zip(numbers, nulls, strict=True)]
    listed: list[Any] = values.to_pylist()
    return listed


def hive_value(value: Any, kind: HiveType) -> str:
    """A value without parts, other than a text, as Hive 4 writes it."""
    match value:
        case bool():
            return str(value).lower()
        case float() | np.floating():
            return java_float(np.float32(value) if kind.kind == "float" else value)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return text.rstrip("0") if "." in text else text
    return str(value)


def write_exported(
    location: str,
    name: str,
    columns: Sequence[Column],
    stored: FileFormat,
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Writes the batches into a file of a directory, or none if there are no rows; returns their
    number. Raises InvalidExpression for a text that can't be written."""
    files, path = Files.of(location)
    writer: OrcWriter | ParquetWriter | TextWriter
    match stored.name:
        case "orc":
            writer = OrcWriter(files, f"{path}/{name}", columns, "zlib")
        case "parquet":
            writer = ParquetWriter(files, f"{path}/{name}", columns)
        case _:
            writer = TextWriter(files, f"{path}/{name}", columns, stored)
    try:
        for batch in batches:
            values = [
                value.cast(arrow_type(column.type))
                for value, column in zip(batch.columns, columns, strict=True)
            ]
            if stored.name == "orc":
                values = [*map(to_be_stored, values)]
            names = [column.name for column in columns]
            writer.write(pa.RecordBatch.from_arrays(values, names=names))
        return writer.close()
    except BaseException:
        writer.give_up()
        raise
