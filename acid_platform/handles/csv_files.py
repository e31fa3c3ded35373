"""Files of CSV, read by Arrow, and refused where Arrow guesses what their quotes mean; and the
types of a new table's columns, from all values of texts or of JSON (P66).

A type is chosen if it holds every value as it is written: `007` stays a text, and `0.10` is a
decimal."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from acid_platform.base.file_bounds import LONGEST_ROW, MOST_COLUMNS, MOST_FIELDS
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.layout.types import INTEGRAL, Column, HiveType, struct_of
from acid_platform.values.arrow_types import arrow_type, filled

_TEXTS = {
    "boolean": r"^(true|false|TRUE|FALSE|True|False)$",
    "bigint": r"^(0|-?[1-9]\d{0,17})$",
    "decimal": r"^-?(0|[1-9]\d{0,37})(\.\d{1,38})?$",
    "double": r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?$",
    "date": r"^\d{4}-\d{2}-\d{2}$",
    "timestamp": r"^\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?$",
}
_STRING = HiveType("string")
_MOST = 38


class TypeOfTexts:
    """Takes the texts of a column, and says their type."""

    def __init__(self) -> None:
        self._left = list(_TEXTS)
        self._any = False
        self._before = self._after = 0
        """The most digits before and after the point."""

    def add(self, texts: pa.StringArray) -> None:
        texts = texts.drop_null()
        if not len(texts) or not self._left:
            return
        self._any = True
        self._left = [kind for kind in self._left if self._holds(kind, texts)]

    def _holds(self, kind: str, texts: pa.StringArray) -> bool:
        if not pc.all(pc.match_substring_regex(texts, _TEXTS[kind])).as_py():
            return False
        if kind in ("date", "timestamp", "double"):
            try:
                values = texts.cast(arrow_type(HiveType(kind)))
            except pa.ArrowInvalid:  # such as 30 February
                return False
            return kind != "double" or not pc.any(pc.is_inf(values)).as_py()
        if kind == "decimal":
            halves = pc.split_pattern(pc.ascii_ltrim(texts, "-"), ".")
            before = pc.max(pc.utf8_length(pc.list_element(halves, 0))).as_py()
            points = pc.match_substring(texts, ".")
            after = 0
            if pc.any(points).as_py():
                fractions = pc.list_element(halves.filter(points), 1)
                after = pc.max(pc.utf8_length(fractions)).as_py()
            self._before, self._after = max(self._before, before), max(self._after, after)
            return self._before + self._after <= _MOST
        return True

    @property
    def type(self) -> HiveType:
        if not self._any or not self._left:
            return _STRING
        kind = self._left[0]
        if kind == "decimal":
            return HiveType("decimal", (max(self._before + self._after, 1), self._after))
        return HiveType(kind)


def type_of(value: Any, known: HiveType | None) -> HiveType | None:
    """The type of a value of JSON and of those before it; None if all were NULL.

    Raises ValueError for an object or array among other values.
    """
    kind = _own(value)
    return kind if known is None else known if kind is None else _common(known, kind)


def _own(value: Any) -> HiveType | None:
    match value:
        case None:
            return None
        case bool():
            return HiveType("boolean")
        case int():
            return HiveType("bigint") if -(1 << 63) <= value < 1 << 63 else _decimal(Decimal(value))
        case Decimal():
            return _decimal(value)
        case float():
            return HiveType("double")
        case dict():
            fields = {str(name).lower(): _own(part) for name, part in value.items()}
            known = {name: kind for name, kind in fields.items() if kind is not None}
            return _struct(known) if known else None
        case list():
            element: HiveType | None = None
            for part in value:
                element = type_of(part, element)
            return element and HiveType("array", (), (("element", element),))
    return _STRING


def _decimal(value: Decimal) -> HiveType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -_MOST <= exponent <= 0:
        return HiveType("double")
    precision = max(len(digits), -exponent, 1)
    return HiveType("decimal", (precision, -exponent)) if precision <= _MOST else HiveType("double")


def _common(one: HiveType, other: HiveType) -> HiveType:
    if one == other:
        return one
    if one.kind == other.kind == "struct":
        fields = dict(one.children)
        for name, kind in other.children:
            fields[name] = _common(fields[name], kind) if name in fields else kind
        return _struct(fields)
    if one.kind == other.kind == "array":
        return HiveType(
            "array", (), (("element", _common(one.children[0][1], other.children[0][1])),)
        )
    if one.nested or other.nested:
        raise ValueError(f"it is {one} in one row and {other} in another; declare it by --schema")
    numbers = [_sizes(kind) for kind in (one, other)]
    if None in numbers:
        whole = {one.kind, other.kind} <= {"bigint", "decimal", "double"}
        return HiveType("double") if whole else _STRING
    before, after = (max(sizes) for sizes in zip(*filter(None, numbers), strict=True))
    if before + after > _MOST:
        return HiveType("double")
    return HiveType("decimal", (before + after, after))


def _struct(fields: Mapping[str, HiveType]) -> HiveType:
    if len(fields) > MOST_FIELDS:
        raise ValueError(f"its objects have more than {MOST_FIELDS:,} names")
    return struct_of(fields.items())


def _sizes(kind: HiveType) -> tuple[int, int] | None:
    """The digits before and after the point."""
    if kind.kind == "bigint":
        return 19, 0
    return (kind.sizes[0] - kind.sizes[1], kind.sizes[1]) if kind.kind == "decimal" else None


def columns_of(kinds: Mapping[str, HiveType | None]) -> tuple[Column, ...]:
    """Columns of these types; one of nothing but NULL is a string."""
    return tuple(Column(name, kind or _STRING) for name, kind in kinds.items())


PARSED = (*INTEGRAL, "boolean", "float", "double")
"""Types that no other text than a number or boolean is read as; the others take a text
(`docs/load.md`)."""
_QUOTE = ord('"')


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Files that begin with the names of their columns; an empty value without quotes is NULL.

    Raises ValueError, also as pyarrow.ArrowInvalid and UnicodeError, for files that are not so.
    """

    delimiter: str = ","
    encoding: str = "UTF-8"
    decimal_comma: bool = False
    """Whether numbers are written as `1,5`; a point in one is an error then."""
    longest_row: int = LONGEST_ROW
    """Bytes of text that Arrow reads at a time, and so the most that a row may have."""

    def names(self, file: IO[bytes]) -> dict[str, str]:
        """The names of the columns, and how the first row writes them: blanks and line breaks
        around a name are none of its letters, and inside it they are one blank. The file is read no
        further than needed."""
        try:
            written = next(filter(None, self._rows(file)), [])
        except csv.Error as error:
            raise ValueError(f"the names of the columns can't be read: {error}") from error
        if not written:
            raise ValueError("it is empty, and should begin with the names of the columns")
        names = [" ".join(name.split()) for name in written]
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise ValueError(f"it has two columns {twice[0]!r}")
        return dict(zip(names, written, strict=True))

    def _rows(self, file: IO[bytes]) -> Iterator[list[str]]:
        text = io.TextIOWrapper(file, self.encoding, newline="")

        def lines() -> Iterator[str]:
            begin, size, values = "\ufeff", 0, 1
            while line := text.readline(self.longest_row + 1).removeprefix(begin):
                size += len(line) if size or line.strip("\r\n") else 0
                values += line.count(self.delimiter)
                if values > MOST_COLUMNS:
                    raise ValueError(
                        f"its first row names more than {MOST_COLUMNS:,} columns, the most that a"
                        " file may have"
                    )
                if size > self.longest_row:
                    raise ValueError(
                        f"its first row does not end within {self.longest_row >> 20} MB, the most"
                        " that a row may have"
                    )
                begin = ""
                yield line

        return csv.reader(lines(), delimiter=self.delimiter, strict=True)

    def batches(
        self, file: IO[bytes], types: Mapping[str, pa.DataType], names: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        """The columns that are named, as these types; `names` are those of the file. Raises NoValue
        for a text that is no value of its type."""
        target, rows = pa.schema(types), 0
        with self._reader(file, [names[name] for name in types]) as reader:
            for batch in reader:
                texts = pa.RecordBatch.from_arrays(batch.columns, list(types))
                yield parsed(texts, target, self.decimal_comma, rows)
                rows += batch.num_rows

    @contextmanager
    def _reader(
        self, file: IO[bytes], names: Sequence[str]
    ) -> Iterator[arrow_csv.CSVStreamingReader]:
        text = _CheckedText(file, self.delimiter, self.encoding)
        try:
            with arrow_csv.open_csv(
                text,
                arrow_csv.ReadOptions(block_size=self.longest_row, use_threads=False),
                arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=names,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            ) as reader:
                yield reader
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                raise ValueError(
                    f"{text.quotes.place()} does not end within {self.longest_row >> 20} MB, the"
                    " most that a row may have"
                ) from error
            if row := _ROW.search(str(error)):
                raise NoValue(int(row[1]) - 2, str(error).replace(row[0], "")) from error
            raise

    def with_points(self, texts: pa.StringArray) -> pa.StringArray:
        """The texts, in which numbers have a point where the file has a comma."""
        if not self.decimal_comma:
            return texts
        numbers = pc.match_substring_regex(texts, r"^-?\d+(,\d+)?$")
        pointed = pc.replace_substring(texts, ",", ".")
        with_point = pc.match_substring_regex(texts, r"^-?[\d.]*\.\d*$")  # is no number here
        marked = pc.if_else(with_point, "x", texts)
        return pc.if_else(numbers, pointed, marked)

    def place_of(self, file: IO[bytes], row: int) -> str:
        """The line in which a row ends, or the row if Python can't read so long a value; 0 is the
        first after the names."""
        rows = csv.reader(
            io.TextIOWrapper(file, self.encoding, newline=""), delimiter=self.delimiter
        )
        try:
            for _ in islice(filter(None, rows), row + 2):
                pass
        except csv.Error:
            return f"row {row + 1}"
        return f"line {rows.line_num}"


_ROW = re.compile(r"Row #(\d+): ")


_DIGITS = 38
_TOO_LONG = rf"[1-9]\d{{{_DIGITS},}}|\.\d{{{_DIGITS + 1},}}"
"""A number with more digits than any decimal; Arrow reads another number from it."""


class NoValue(ValueError):
    """A row of the file, counted from 0, that has not what it should have."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def parsed(
    batch: pa.RecordBatch, target: pa.Schema, decimal_comma: bool = False, before: int = 0
) -> pa.RecordBatch:
    """The batch with these types of its columns; `before`: the rows of the batches before it.
    Raises NoValue for a text that is no value."""
    columns = []
    for column, field in zip(batch.columns, target, strict=True):
        if column.type != field.type:
            try:
                column = _parsed_texts(column, field.type, decimal_comma)
            except (pa.ArrowException, ValueError) as error:
                row = _first_refused(column, field.type, decimal_comma)
                raise NoValue(before + row, f"column {field.name!r}: {error}") from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _first_refused(texts: pa.Array, kind: pa.DataType, decimal_comma: bool) -> int:
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _parsed_texts(texts.slice(low, middle - low), kind, decimal_comma)
            low = middle
        except (pa.ArrowException, ValueError):
            high = middle
    return low


def _parsed_texts(texts: pa.Array, kind: pa.DataType, decimal_comma: bool) -> pa.Array:
    floating = pa.types.is_floating(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return texts.cast(kind)
    texts = pc.ascii_trim(texts, " \t")
    if decimal_comma and (floating or pa.types.is_decimal(kind)):
        if pc.any(points := pc.match_substring(texts, ".")).as_py():
            wrong = texts.filter(points)[0].as_py()
            raise ValueError(f"{wrong!r} has a point, and numbers have a decimal comma")
        texts = pc.replace_substring(texts, ",", ".")
    if pa.types.is_decimal(kind):
        long = pc.match_substring_regex(texts, _TOO_LONG)
        if pc.any(long).as_py():
            text = texts.filter(long)[0].as_py()
            raise ValueError(f"{text[:40] + '…'!r} has more than {_DIGITS} digits")
    numbers = texts.cast(kind)
    if not floating:
        return numbers
    lost = filled(pc.is_inf(numbers), False)
    if lost.any():
        lost &= ~filled(pc.match_substring(texts, "inf", ignore_case=True), False)
    if lost.any():
        raise ValueError(f"{texts[int(lost.argmax())].as_py()!r} is too large for a {kind}")
    return numbers


class _CheckedText:
    """A file as UTF-8, for Arrow. Reading it raises ValueError for quotes that are wrong."""

    closed = False

    def __init__(self, file: IO[bytes], delimiter: str, encoding: str) -> None:
        self.quotes = CsvQuotes(delimiter)
        self._file = file
        plain = codecs.lookup(encoding).name == "utf-8"
        self._decoder = None if plain else codecs.getincrementaldecoder(encoding)()
        self._held = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        while not self._ended and len(self._held) < size:
            block = self._file.read(size - len(self._held))
            self._ended = not block
            if self._decoder is not None:
                block = self._decoder.decode(block, final=self._ended).encode()
            self.quotes.add(block)
            self._held += block
        if self._ended:
            self.quotes.end()
        block, self._held = self._held[:size], self._held[size:]
        return block

    def close(self) -> None:
        self.closed = True


class CsvQuotes:
    """Follows the quotes of a text in UTF-8 from block to block, as Arrow's reader does.

    A quote at the beginning of a value opens it, and two inside of it are one of its letters. Arrow
    takes a value that is not closed, and letters after the quote that closes one: both are errors.
    """

    def __init__(self, delimiter: str) -> None:
        self._ends = delimiter.encode() + b"\r\n"
        beside = np.zeros(256, bool)
        beside[[*self._ends, _QUOTE]] = True
        self._beside = beside
        ends = re.escape(delimiter.encode()) + rb"\r\n"
        value = rb'"[^"]*+(?:""[^"]*+)*+"'
        bare = rb'[^"%b][^%b]*+' % (ends, ends)
        self._values = re.compile(rb"(?:(?:%b|%b)?+[%b])*+" % (value, bare, ends))
        self._begun = re.compile(rb"(?:%b?|%b)?" % (value, bare))
        self._before = b""
        """Stands for the beginning of the value that the next block goes on with."""
        self._line = 1
        self._opened = 1
        """The line of the last quote that opened a value, if that may go on."""
        self._first = True

    def add(self, block: bytes) -> None:
        """Raises ValueError."""
        if self._first and block:
            block, self._first = block.removeprefix(codecs.BOM_UTF8), False
        text = self._before + block
        begin = self._last_value(text)
        if begin is None:
            whole = self._values.match(text)
            begin = whole.end() if whole else 0
        if begin or not self._before:
            self._opened = self._line + _lines(text, begin)
        if text[begin : begin + 1] == b'"' and not self._begun.fullmatch(text, begin):
            raise ValueError(
                f"letters follow the quote that closes a value which begins in line {self._opened};"
                ' a quote inside of such a value is written twice, ""'
            )
        self._line += _lines(text, len(text))
        if begin == len(text):
            self._before = b""
        elif text[begin] != _QUOTE:
            self._before = b"-"
        else:
            self._before = b'"' if text.count(b'"', begin) % 2 else b'""'

    def _last_value(self, text: bytes) -> int | None:
        """Where the value that the text ends in begins, or a later letter of one without quotes.

        None if a quote is not beside the beginning or end of a value, or another quote. Otherwise
        every second quote closes what the one before it has opened.
        """
        letters = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(letters == _QUOTE)
        opening, closing = quotes[0::2], quotes[1::2]
        inner = opening[1:] if len(opening) and not opening[0] else opening
        closed = closing[:-1] if len(closing) and closing[-1] == len(text) - 1 else closing
        if not (self._beside[letters[inner - 1]].all() and self._beside[letters[closed + 1]].all()):
            return None
        if len(quotes) % 2 or text.endswith(b'"'):
            again = np.zeros(len(opening), bool)  # the second of two quotes that are a letter
            again[1:] = np.diff(quotes)[1::2] == 1
            return int(opening[~again][-1])
        return len(text) - (text[-1:] not in self._ends)

    def end(self) -> None:
        """Raises ValueError if the text ends inside of a value."""
        if self._before == b'"':
            raise ValueError(f"the quote that opens a value in line {self._opened} is not closed")

    def place(self) -> str:
        """What is being read, as the subject of an error."""
        if self._before == b'"':
            return f"the value whose quote opens in line {self._opened}"
        return f"a row before line {self._line}"


def _lines(text: bytes, end: int) -> int:
    return text.count(b"\n", 0, end) or text.count(b"\r", 0, end)
