"""The rows of a text file, a block of lines at a time, as Hadoop's line reader divides it (P65).

Delimited fields are as Hive's LazySimpleSerDe reads them, and fields between quotes as OpenCSVSerde
does, with the escapes of opencsv 2.3. Of JSON, one object a line, a value is taken if the column's
type holds it exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.base.file_bounds import BATCH_VALUES, LONGEST_ROW, MOST_OF_A_ROW
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.layout.formats import (
    ESCAPE,
    ESCAPED_BY,
    NULL,
    QUOTE,
    SEPARATOR,
    FileFormat,
    separators,
)
from acid_platform.layout.types import INTEGRAL, Column, HiveType
from acid_platform.scan.text_values import parsed, typed_texts
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_type, from_numpy, values_of
from acid_platform.values.stored_values import FineTime, fine_times

_AS_TEXT = ("date", "timestamp")
_EXACT = Context(prec=100)
"""Python's own context refuses to round to more than 28 digits; a decimal has up to 38."""
_MOST_DIGITS = 400
"""After the point of a number; more would only fill the memory."""


class NoSuchValue(ValueError):
    """A value that the column's type does not hold."""


def json_columns(
    lines: pa.StringArray, columns: Sequence[Column], needed: Collection[str], path: str
) -> dict[str, pa.Array]:
    """The needed columns, by name. Keys match ignoring case; a missing one is NULL, and one that no
    column has is left out.

    Raises CorruptFile for a line that is no object, and for a value that its column does not hold.
    """
    chosen = [column for column in columns if column.name in needed]
    kinds = [column.type for column in chosen]
    values: dict[str, list[object]] = {column.name: [] for column in chosen}
    for line in lines.to_pylist():
        try:
            row = parsed(line)
            if not isinstance(row, dict):
                raise NoSuchValue("it is no object")
            require_few(row, len(line), kinds)
            own = {str(key).lower(): value for key, value in row.items()}
            for column in chosen:
                values[column.name].append(fitting(own.get(column.name), column.type, column.name))
        except ValueError as error:
            raise CorruptFile(f"{path}: {error}, in the line {line[:120]!r}; correct it") from error
    return {
        column.name: pa.array(values[column.name], arrow_type(column.type)) for column in chosen
    }


def require_few(row: Mapping[str, Any], letters: int, kinds: Sequence[HiveType]) -> None:
    """Raises NoSuchValue for a row with so many objects, of so many letters, that the fields which
    they lack would fill the memory."""
    widest = max((len(part.children) for kind in kinds for part in kind.walk()), default=0)
    # `{},` are three letters.
    if letters // 3 * widest > MOST_OF_A_ROW and _objects(row) * widest > MOST_OF_A_ROW:
        raise NoSuchValue(
            f"it has {_objects(row):,} objects, and a struct has up to {widest} fields: together"
            f" more than the {MOST_OF_A_ROW:,} values that a row may have"
        )


def _objects(value: Any) -> int:
    parts = value.values() if isinstance(value, Mapping) else value
    own = int(isinstance(value, Mapping))
    return own + sum(_objects(part) for part in parts if isinstance(part, Mapping | list))


def fitting(value: Any, kind: HiveType, place: str) -> object:
    """A value of JSON as Arrow takes it for the type. Raises NoSuchValue, which names the place."""
    if value is None:
        return None
    match kind.kind:
        case "struct" if isinstance(value, Mapping):
            own = {str(key).lower(): part for key, part in value.items()}
            if len(own) < len(value):
                raise NoSuchValue(f"{place} has two names that differ in their case only")
            return {
                name: fitting(own.get(name.lower()), child, f"{place}.{name}")
                for name, child in kind.children
            }
        case "array" if isinstance(value, list):
            return [fitting(part, kind.children[0][1], f"{place}[]") for part in value]
        case "map" if isinstance(value, Mapping):
            (_, key), (_, item) = kind.children
            return [
                (_text_value(name, key, place), fitting(part, item, f"{place}[value]"))
                for name, part in value.items()
            ]
        case "boolean" if isinstance(value, bool):
            return value
        case "string" | "char" | "varchar" if not isinstance(value, dict | list):
            return str(value) if isinstance(value, str | Decimal) else json.dumps(value)
        case text if text in _AS_TEXT and isinstance(value, str):
            return _text_value(value, kind, place)
        case number if number in (*INTEGRAL, "decimal", "float", "double") and not isinstance(
            value, bool | str | dict | list
        ):
            return _number(value, kind, place)
    raise NoSuchValue(f"{place} is {json.dumps(value, default=str)[:60]}, which is no {kind}")


def _text_value(text: str, kind: HiveType, place: str) -> object:
    """A key of a map, a day or a time, as Hive's delimited text has them."""
    value = typed_texts(pa.array([text], pa.string()), kind)[0].as_py()
    if value is None:
        raise NoSuchValue(f"{place} is {text[:60]!r}, which is no {kind}")
    return value


def as_stored(value: int | Decimal | float, kind: HiveType) -> float:
    """The nearest float or double; infinity beyond the largest."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(number)) if kind.kind == "float" else number


def _number(value: int | Decimal | float, kind: HiveType, place: str) -> object:
    if kind.kind in ("float", "double"):
        number = as_stored(value, kind)
        if math.isinf(number) and not (isinstance(value, float) and math.isinf(value)):
            raise NoSuchValue(f"{place} is {str(value)[:40]}, which is too large for a {kind}")
        return number
    exact = Decimal(value)
    if exact.is_finite() and not -_MOST_DIGITS < exact.adjusted() < 40 and exact:
        raise NoSuchValue(f"{place} is {str(value)[:40]}, which is no {kind}")
    whole = kind.kind in INTEGRAL
    limit = Decimal(1 << arrow_type(kind).bit_width - 1) if whole else None
    scale = 0 if whole else kind.sizes[1]
    step = Decimal(1).scaleb(-scale)
    if not exact.is_finite() or exact != (rounded := exact.quantize(step, context=_EXACT)):
        raise NoSuchValue(f"{place} is {str(value)[:40]}, which is no {kind}")
    if limit is not None and -limit <= exact < limit:
        return int(exact)
    if limit is None and exact.copy_abs() < Decimal(10) ** (kind.sizes[0] - scale):
        return rounded
    raise NoSuchValue(f"{place} is {str(value)[:40]}, which is no {kind}")


_TEXTS = ("string", "char", "varchar")


@dataclass(frozen=True, slots=True)
class DelimitedText:
    """How lines are divided: at one character per level of nesting."""

    separators: str
    null: str
    """The text that stands for NULL, at every level; it is compared before escapes are undone."""
    escape: str = ""
    """The character that takes the meaning from the one after it; empty: there is none."""

    @classmethod
    def of(cls, stored: FileFormat) -> DelimitedText:
        return cls(separators(stored), stored.options[NULL], stored.options[ESCAPE])

    def columns(
        self, lines: pa.StringArray, columns: Sequence[Column], needed: Collection[str]
    ) -> dict[str, pa.Array]:
        """The needed columns of lines, by name. Columns that a line lacks are NULL, and what it has
        beyond them is left out."""
        last = max((i for i, column in enumerate(columns) if column.name in needed), default=-1)
        if last < 0:
            return {}
        fields = self._split(lines, self.separators[0], last + 1)
        return {
            column.name: self._value(self._part(fields, index), column.type, 1)
            for index, column in enumerate(columns)
            if column.name in needed
        }

    def _value(self, texts: pa.StringArray, kind: HiveType, level: int) -> pa.Array:
        """The values of texts, in which the separator of this level is the next to split at."""
        valid = texts.is_valid() if texts.null_count else None
        match kind.kind:
            case "array":
                parts = self._elements(texts, self.separators[level])
                child = self._value(self._nulls(parts.values), kind.children[0][1], level + 1)
                mask = None if valid is None else pc.invert(valid)
                return pa.ListArray.from_arrays(parts.offsets, child, mask=mask)
            case "map":
                return self._map(texts, kind, level)
            case "struct":
                if len(texts) * len(kind.children) > max(MOST_OF_A_ROW, 4 * BLOCK):
                    raise NoSuchValue(
                        f"lines together have {len(texts):,} structs of {len(kind.children)} fields"
                    )
                fields = self._split(texts, self.separators[level], len(kind.children))
                children = [
                    self._value(self._part(fields, index), child, level + 1)
                    for index, (_, child) in enumerate(kind.children)
                ]
                mask = None if valid is None else pc.invert(valid)
                return pa.StructArray.from_arrays(
                    children, fields=list(arrow_type(kind)), mask=mask
                )
            case text if text in _TEXTS:
                return self._unescaped(texts)
        return typed_texts(texts, kind)

    def _map(self, texts: pa.StringArray, kind: HiveType, level: int) -> pa.MapArray:
        """Maps, in which the first entry with a key counts; one without a key is left out."""
        (_, key), (_, item) = kind.children
        entries = self._elements(texts, self.separators[level])
        pairs = self._split(entries.values, self.separators[level + 1], 1, rest=True)
        keys = self._value(self._part(pairs, 0), key, level + 2)
        items = self._value(self._part(pairs, 1), item, level + 2)
        ends = values_of(entries.offsets)
        counts = [0]
        places: list[int] = []
        listed = keys.to_pylist()
        for begin, end in pairwise(ends):
            first: dict[object, int] = {}
            for index in range(begin, end):
                if listed[index] is not None:
                    first.setdefault(listed[index], index)
            places += first.values()
            counts.append(len(places))
        chosen = pa.array(places, pa.int64())
        return pa.MapArray.from_arrays(
            pa.array(counts, pa.int32()),
            keys.take(chosen),
            items.take(chosen),
            mask=texts.is_null() if texts.null_count else None,
        )

    # --- splitting -----------------------------------------------------------------------------

    def _elements(self, texts: pa.StringArray, separator: str) -> pa.ListArray:
        """The parts of each text; none of an empty one, and of NULL."""
        parts = self._split(pc.fill_null(texts, ""), separator)
        empty = values_of(pc.equal(pc.fill_null(texts, ""), ""))
        sizes = np.diff(values_of(parts.offsets))
        there = np.repeat(~empty, sizes)
        ends = np.concatenate(([0], np.cumsum(np.where(empty, 0, sizes)))).astype(np.int32)
        return pa.ListArray.from_arrays(from_numpy(ends), parts.flatten().filter(from_numpy(there)))

    def _split(
        self, texts: pa.StringArray, separator: str, most: int = -1, rest: bool = False
    ) -> pa.ListArray:
        """The parts of each text, none of NULL. Only the first `most` of them are sure to be whole;
        with `rest`, one more is what follows them."""
        if self.escape and pc.any(pc.match_substring(texts, self.escape)).as_py():
            parts = (
                [] if text is None else [*self._parts(text, separator, most if rest else -1)]
                for text in texts.to_pylist()
            )
            return pa.array(list(parts), pa.list_(pa.string()))
        split = pc.split_pattern(texts, separator, max_splits=most if most > 0 else None)
        if not split.null_count and not split.offset:
            return split
        sizes = np.where(values_of(split.is_valid()), np.diff(values_of(split.offsets)), 0)
        ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        return pa.ListArray.from_arrays(from_numpy(ends), split.flatten())

    def _parts(self, text: str, separator: str, most: int) -> Iterator[str]:
        begin = at = 0
        while at < len(text):
            if text[at] == self.escape:
                at += 2
                continue
            if text[at] == separator and most:
                yield text[begin:at]
                begin, most = at + 1, most - 1
            at += 1
        yield text[begin:]

    def _part(self, parts: pa.ListArray, index: int) -> pa.StringArray:
        """The part at a place of each list, NULL if there is none or it stands for NULL."""
        ends = values_of(parts.offsets)
        there = index < np.diff(ends)
        at = pa.array(ends[:-1].astype(np.int64) + index, mask=~there)
        return self._nulls(parts.values.take(at))

    def _nulls(self, texts: pa.StringArray) -> pa.StringArray:
        return pc.if_else(pc.equal(texts, self.null), pa.scalar(None, pa.string()), texts)

    def _unescaped(self, texts: pa.StringArray) -> pa.StringArray:
        if not self.escape or not pc.any(pc.match_substring(texts, self.escape)).as_py():
            return texts
        return pa.array([text and self._meant(text) for text in texts.to_pylist()], pa.string())

    def _meant(self, text: str) -> str:
        meant, at = [], 0
        while at < len(text):
            if text[at] == self.escape and at + 1 < len(text):
                at += 1
                meant.append({"r": "\r", "n": "\n"}.get(text[at], text[at]))
            else:
                meant.append(text[at])
            at += 1
        return "".join(meant)


BLOCK = 8 << 20
"""Bytes that are read at a time."""
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2"}
_UNREAD = (".deflate", ".snappy", ".lzo", ".lz4", ".zst", ".zstd", ".xz", ".zip")
"""Hadoop takes the end of a name for the codec; it reads these, or takes them for text."""
_MARK = b"\xef\xbb\xbf"


def line_blocks(
    files: Files, path: str, size: int, header: int = 0, columns: Sequence[Column] = ()
) -> Iterator[bytes]:
    """Whole lines, not too many for these columns, each with `\\n` at its end, without the first
    `header` lines of the file.

    A line ends at `\\n`, `\\r` or both; a byte order mark at the beginning is left out. Raises
    CorruptFile if the file does not have `size` bytes before and after and for a line that is too
    long, UnsupportedLayout for a compression that is not read.
    """
    if path.lower().endswith(_UNREAD):
        raise UnsupportedLayout(
            f"{path}: files of text that end in {path.rpartition('.')[2]!r} are not read; write"
            " them plain, or as .gz or .bz2"
        )
    _require_size(files, path, size)
    values = sum(sum(1 for _ in column.type.walk()) for column in columns)
    for block in _blocks(files, path):
        while header and block:
            block, header = block[block.index(b"\n") + 1 :], header - 1
        if block:
            yield from _few_lines(block, max(1, BATCH_VALUES // max(1, values)))
    _require_size(files, path, size)


def _few_lines(block: bytes, most: int) -> Iterator[bytes]:
    """The block in parts of so many lines: a short line has as many values as any other."""
    if block.count(b"\n") <= most:
        yield block
        return
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    for begin, end in pairwise([0, *ends[most - 1 : -1 : most].tolist(), len(block)]):
        yield block[begin:end]


def _blocks(files: Files, path: str) -> Iterator[bytes]:
    codec = next((name for end, name in _COMPRESSED.items() if path.endswith(end)), None)
    with files.system.open_input_stream(path, compression=codec) as stream:
        rest, mark, lines = b"", _MARK, 0
        while data := bytes(stream.read(BLOCK)):
            data = rest + data
            # A `\r` at the end may be half of a line end.
            cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
            rest = data[cut:]
            lines += data.count(b"\n", 0, cut) or data.count(b"\r", 0, cut)
            if len(rest) > LONGEST_ROW:
                raise CorruptFile(
                    f"{path}: line {lines + 1} does not end within {LONGEST_ROW >> 20} MB, the most"
                    " that a line may have; is it a file of text?"
                )
            if cut:
                yield _plain(data[:cut].removeprefix(mark))
                mark = b""
        if rest := rest.removeprefix(mark):
            yield _plain(rest if rest.endswith(b"\r") else rest + b"\n")


def _plain(block: bytes) -> bytes:
    if b"\r" not in block:
        return block
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _require_size(files: Files, path: str, size: int) -> None:
    if (now := files.system.get_file_info(path).size) != size:
        raise CorruptFile(
            f"{path} has {now} bytes, and had {size} when it was listed: it is being written; run"
            " the statement again"
        )


def line_columns(
    block: bytes,
    stored: FileFormat,
    path: str,
    columns: Sequence[Column],
    needed: Collection[str],
) -> tuple[int, dict[str, pa.Array]]:
    """How many lines a block has, and the needed columns of their rows, by name.

    Raises CorruptFile for bytes that are not UTF-8, and for lines that are no rows of the format,
    WrongType for a time with nanoseconds.
    """
    lines = lines_of(block, path)
    match stored.name:
        case "text":
            try:
                return len(lines), DelimitedText.of(stored).columns(lines, columns, needed)
            except FineTime as error:
                raise fine_times(f"{path}: {error}", external=True) from error
            except NoSuchValue as error:
                raise CorruptFile(f"{path}: {error}; divide the file, or its lines") from error
        case "csv":
            return len(lines), CsvLines.of(stored, path).columns(lines, columns, needed)
    return len(lines), json_columns(lines, columns, needed, path)


def lines_of(block: bytes, path: str) -> pa.StringArray:
    """The lines of a block, without their ends. Raises CorruptFile for bytes that are not UTF-8."""
    try:
        text = block[:-1].decode()
    except UnicodeDecodeError as error:
        raise CorruptFile(
            f"{path} is not UTF-8: {error.reason} at {block[error.start : error.start + 4]!r};"
            " convert it"
        ) from error
    return pc.split_pattern(pa.scalar(text), "\n").values


@dataclass(frozen=True, slots=True)
class CsvLines:
    """How a line is divided. A row is one line, also between quotes."""

    separator: str
    quote: str
    escape: str
    path: str

    @classmethod
    def of(cls, stored: FileFormat, path: str) -> CsvLines:
        options = stored.options
        return cls(options[SEPARATOR], options[QUOTE], options[ESCAPED_BY], path)

    def columns(
        self, lines: pa.StringArray, columns: Sequence[Column], needed: Collection[str]
    ) -> dict[str, pa.Array]:
        """The needed columns, which are strings; NULL where a line has no such field.

        Raises CorruptFile for a quote that is not closed in its line.
        """
        special = (pc.match_substring(lines, mark) for mark in (self.quote, self.escape))
        if any(pc.any(lines_with_it).as_py() for lines_with_it in special):
            fields = [list(self._fields(line)) if line else [] for line in lines.to_pylist()]
            split = pa.array(fields, pa.list_(pa.string()))
        else:
            split = pc.split_pattern(lines, self.separator)
        ends = values_of(split.offsets)
        sizes = np.where(values_of(pc.equal(lines, "")), 0, np.diff(ends))
        return {
            column.name: split.values.take(
                pa.array(ends[:-1].astype(np.int64) + index, mask=index >= sizes)
            )
            for index, column in enumerate(columns)
            if column.name in needed
        }

    def _fields(self, line: str) -> Iterator[str]:
        if self.quote not in line and self.escape not in line:
            yield from line.split(self.separator)
            return
        field: list[str] = []
        quoted, at = False, 0
        while at < len(line):
            character, after = line[at], line[at + 1 : at + 2]
            if character == self.escape:
                if quoted and after and after in (self.quote, self.escape):
                    field.append(after)
                    at += 1
            elif character == self.quote:
                if quoted and after == self.quote:
                    field.append(after)
                    at += 1
                else:
                    inside = after and after != self.separator and line[at - 1] != self.separator
                    if at > 2 and inside:  # a quote within a field is a part of it
                        if field and not "".join(field).strip():
                            field.clear()
                        else:
                            field.append(character)
                    quoted = not quoted
            elif character == self.separator and not quoted:
                yield "".join(field)
                field.clear()
            else:
                field.append(character)
            at += 1
        if quoted:
            raise CorruptFile(
                f"{self.path}: a quote is not closed in its line, and each line is a row:"
                f" {line[:80]!r}"
            )
        yield "".join(field)
