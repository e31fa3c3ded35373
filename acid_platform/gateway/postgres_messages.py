"""PostgreSQL's protocol 3 as bytes: messages, types and values, in text and in binary form."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

from acid_platform.errors import InvalidExpression

TLS_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
TEXT = 25
_FIRST = datetime(2000, 1, 1)
_EPOCH_US = 946_684_800_000_000
"""PostgreSQL counts from 2000-01-01; these are the microseconds from 1970 to it."""


def message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value: str) -> bytes:
    """A text as it stands in messages, which a NUL ends."""
    return value.replace("\0", "\\0").encode("utf-8", "backslashreplace") + b"\0"


def status(name: str, value: str) -> bytes:
    return message(b"S", text(name), text(value))


def failure(code: str, why: str, severity: str = "ERROR") -> bytes:
    fields = {"S": severity, "V": severity, "C": code, "M": why}
    return message(b"E", *(key.encode() + text(said) for key, said in fields.items()), b"\0")


class Body:
    """Reads a message. Raises InvalidExpression for one that is cut off."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, size: int) -> bytes:
        found = self._content[self._at : self._at + size]
        if size < 0 or len(found) < size:
            raise InvalidExpression("a message of the client is cut off")
        self._at += size
        return found

    def number(self, form: str) -> int:
        """`h`, `i` or `I`."""
        (found,) = struct.unpack("!" + form, self.take(struct.calcsize(form)))
        return int(found)

    def text(self) -> str:
        end = self._content.find(b"\0", self._at)
        found = self.take(end - self._at)
        self._at += 1
        return _decoded(found)

    def numbers(self, form: str) -> list[int]:
        return [self.number(form) for _ in range(self.number("h"))]

    def value(self) -> bytes | None:
        """A value with its length, None for NULL."""
        size = self.number("i")
        return None if size == -1 else self.take(size)

    @property
    def more(self) -> bool:
        return self._at < len(self._content)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidExpression(f"a text of the client is not UTF-8: {error}") from error


# --- types ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WireType:
    """How values of one of DuckDB's types are sent; `{}` in SQL is the value."""

    oid: int
    size: int = -1
    as_text: str = "CAST({} AS VARCHAR)"
    as_binary: str = "{}"
    pack: Callable[[Any], bytes] = str.encode


def _packed(form: str) -> Callable[[Any], bytes]:
    return struct.Struct("!" + form).pack


def _numeric(shown: str) -> bytes:
    """A decimal in binary form: groups of four digits, from the highest."""
    sign, digits, exponent = Decimal(shown).as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    whole = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole = whole.rjust(scale + 1, "0")
    before, after = whole[: len(whole) - scale], whole[len(whole) - scale :]
    before = before.rjust(-(-len(before) // 4) * 4, "0")
    after = after.ljust(-(-len(after) // 4) * 4, "0")
    groups = [int((before + after)[at : at + 4]) for at in range(0, len(before + after), 4)]
    weight = len(before) // 4 - 1
    while groups and not groups[0]:
        del groups[0]
        weight -= 1
    while groups and not groups[-1]:
        del groups[-1]
    head = (len(groups), weight if groups else 0, 0x4000 if sign else 0, scale)
    return struct.pack(f"!hhHh{len(groups)}h", *head, *groups)


def _interval(parts: Sequence[int]) -> bytes:
    months, days, microseconds = parts
    return struct.pack("!qii", microseconds, days, months)


_SIGNED = "replace(replace(CAST({} AS VARCHAR), 'inf', 'Infinity'), 'nan', 'NaN')"
_ERA = "replace(CAST({} AS VARCHAR), ' (BC)', ' BC')"
_DAYS = "date_diff('day', DATE '2000-01-01', {})"
_MICROSECONDS = "epoch_us({}) - " + str(_EPOCH_US)
_PARTS = (
    "CASE WHEN {0} IS NOT NULL THEN [datepart('year', {0}) * 12 + datepart('month', {0}),"
    " datepart('day', {0}), (datepart('hour', {0}) * 60 + datepart('minute', {0})) * 60000000"
    " + datepart('microsecond', {0})] END"
)
_SHORT, _INT, _LONG = (
    WireType(21, 2, pack=_packed("h")),
    WireType(23, 4, pack=_packed("i")),
    WireType(20, 8, pack=_packed("q")),
)
_NUMERIC = WireType(1700, as_binary="CAST({} AS VARCHAR)", pack=_numeric)
_TIMESTAMP = WireType(1114, 8, _ERA, _MICROSECONDS, _packed("q"))
_JSON = WireType(114, -1, "CAST(to_json({}) AS VARCHAR)", "CAST(to_json({}) AS VARCHAR)")
_OTHER = WireType(TEXT, as_binary="CAST({} AS VARCHAR)")
_TYPES = {
    "BOOLEAN": WireType(
        16, 1, "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END", pack=_packed("?")
    ),
    **dict.fromkeys(("TINYINT", "UTINYINT", "SMALLINT"), _SHORT),
    **dict.fromkeys(("USMALLINT", "INTEGER"), _INT),
    **dict.fromkeys(("UINTEGER", "BIGINT"), _LONG),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT"), _NUMERIC),
    "FLOAT": WireType(700, 4, _SIGNED, pack=_packed("f")),
    "DOUBLE": WireType(701, 8, _SIGNED, pack=_packed("d")),
    "BLOB": WireType(17, -1, "'\\x' || lower(hex({}))", pack=bytes),
    "DATE": WireType(1082, 4, _ERA, _DAYS, _packed("i")),
    "TIME": WireType(1083, 8, as_binary="date_diff('us', TIME '0:00', {})", pack=_packed("q")),
    "TIMESTAMP": _TIMESTAMP,
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), _TIMESTAMP),
    "TIMESTAMP WITH TIME ZONE": WireType(1184, 8, _ERA, _MICROSECONDS, _packed("q")),
    "INTERVAL": WireType(
        1186, 16, "replace(CAST({} AS VARCHAR), ' month', ' mon')", _PARTS, _interval
    ),
    "UUID": WireType(
        2950, 16, as_binary="CAST({} AS VARCHAR)", pack=lambda shown: UUID(shown).bytes
    ),
    "JSON": _JSON,
}


@cache
def wire_type(duckdb: str) -> WireType:
    """How a column of this type of DuckDB is sent; nested values go as JSON."""
    if duckdb.startswith("DECIMAL"):
        return _NUMERIC
    if duckdb.endswith("]") or duckdb.startswith(("STRUCT", "MAP", "UNION", "LIST")):
        return _JSON
    return _TYPES.get(duckdb, _OTHER)


@dataclass(frozen=True, slots=True)
class ShownColumn:
    name: str
    duckdb: str
    """Its type in DuckDB."""

    @property
    def _modifier(self) -> int:
        if not self.duckdb.startswith("DECIMAL("):
            return -1
        width, _, scale = self.duckdb[8:-1].partition(",")
        return (int(width) << 16 | int(scale)) + 4

    def described(self, binary: bool) -> bytes:
        kind = wire_type(self.duckdb)
        numbers = (0, 0, kind.oid, kind.size, self._modifier, int(binary))
        return text(self.name) + struct.pack("!ihihih", *numbers)


def described(columns: Sequence[ShownColumn], binary: Sequence[bool] = ()) -> bytes:
    """The message that names the columns of rows."""
    forms = binary or [False] * len(columns)
    parts = (column.described(form) for column, form in zip(columns, forms, strict=True))
    return message(b"T", struct.pack("!h", len(columns)), *parts)


def selected(query: str, columns: Sequence[ShownColumn], binary: Sequence[bool]) -> str:
    """SQL of the rows of a query, each value as it is sent or packed."""
    names = [f"c{spot}" for spot in range(len(columns))]
    values = [
        (wire_type(column.duckdb).as_binary if form else wire_type(column.duckdb).as_text).format(
            name
        )
        for name, column, form in zip(names, columns, binary, strict=True)
    ]
    return f"SELECT {', '.join(values)} FROM (\n{query}\n) AS acid_rows({', '.join(names)})"


def rows(
    values: Sequence[Sequence[Any]], columns: Sequence[ShownColumn], binary: Sequence[bool]
) -> list[bytes]:
    """The messages of rows, given by columns."""
    size, head = struct.Struct("!i").pack, struct.pack("!h", len(columns))
    null = size(-1)
    sent: list[list[bytes]] = []
    for column, form, column_values in zip(columns, binary, values, strict=True):
        pack = wire_type(column.duckdb).pack if form else str.encode
        packed = (None if value is None else pack(value) for value in column_values)
        sent.append([null if each is None else size(len(each)) + each for each in packed])
    return [message(b"D", head, *row) for row in zip(*sent, strict=True)]


# --- parameters -----------------------------------------------------------------------------------

_READ: dict[int, tuple[str, ...]] = {
    16: ("BOOLEAN", "?"),
    17: ("BLOB", ""),
    20: ("BIGINT", "q"),
    21: ("SMALLINT", "h"),
    23: ("INTEGER", "i"),
    25: ("VARCHAR", ""),
    1043: ("VARCHAR", ""),
    26: ("BIGINT", "I"),
    700: ("FLOAT", "f"),
    701: ("DOUBLE", "d"),
    1082: ("DATE", "i"),
    1083: ("TIME", "q"),
    1114: ("TIMESTAMP", "q"),
    1184: ("TIMESTAMP WITH TIME ZONE", "q"),
    1186: ("INTERVAL", ""),
    1700: ("DECIMAL", ""),
    2950: ("UUID", ""),
}
"""The types of parameters: DuckDB's name, and how the binary form of a number is read."""
_ARRAYS = {1000: 16, 1005: 21, 1007: 23, 1016: 20, 1009: 25, 1015: 25, 1022: 701, 1028: 26}
"""The types of arrays, with those of their values."""


def named_type(oid: int) -> str:
    """DuckDB's name of a type of parameters; empty for one that is not known here."""
    if oid in _ARRAYS:
        return f"{named_type(_ARRAYS[oid])}[]"
    return "DECIMAL(38, 10)" if oid == 1700 else _READ.get(oid, ("",))[0]


def parameter_oid(kind: str) -> int:
    """PostgreSQL's type of a parameter of one of DuckDB's types."""
    oid = wire_type(kind.removesuffix("[]")).oid
    arrays = {of: array for array, of in _ARRAYS.items()} if kind.endswith("[]") else {}
    return arrays.get(oid, oid)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value for a statement: of Python, or a text that DuckDB casts to its type."""

    value: Any
    cast_to: str = ""


def parameter(oid: int, binary: bool, sent: bytes | None, wanted: str) -> Parameter:
    """A parameter of the type `oid`, 0 for one of DuckDB's type `wanted`.

    Raises InvalidExpression.
    """
    if sent is None:
        return Parameter(None)
    if oid in _ARRAYS:
        return Parameter(_array(_ARRAYS[oid], binary, sent))
    name = _READ.get(oid, ("VARCHAR",))[0] if oid else wanted
    try:
        if binary:
            return _from_binary(name, oid or wire_type(wanted).oid, sent)
        return _from_text(name, _decoded(sent))
    except (ValueError, ArithmeticError, struct.error) as error:
        raise InvalidExpression(f"{sent[:100]!r} is no value of the type {name}") from error


def _from_text(name: str, shown: str) -> Parameter:
    if name in ("VARCHAR", "UNKNOWN"):
        return Parameter(shown)
    if name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"):
        return Parameter(int(shown))
    if name.startswith("DECIMAL"):
        return Parameter(Decimal(shown))
    if name == "BLOB":
        return Parameter(bytes.fromhex(shown[2:]) if shown[:2] == "\\x" else shown.encode())
    if name in ("DATE", "TIMESTAMP"):  # drivers send a zone, too, which PostgreSQL leaves out
        shown = re.sub(r"\s*[+-]\d\d(:?\d\d)?$", "", shown) if " " in shown else shown
    return Parameter(shown, name)


def _from_binary(name: str, oid: int, sent: bytes) -> Parameter:
    form = _READ.get(oid, ("", ""))[1]
    if oid == 17:
        return Parameter(sent)
    if oid == 1700:
        return Parameter(_decimal(sent))
    if oid == 2950:
        return Parameter(str(UUID(bytes=sent)), "UUID")
    if not form:
        return _from_text(name, _decoded(sent))
    (number,) = struct.unpack("!" + form, sent)
    if oid == 1082:
        return Parameter(_FIRST.date() + timedelta(days=number))
    if oid in (1083, 1114, 1184):
        moment = _FIRST + timedelta(microseconds=number)
        return Parameter(
            moment.time() if oid == 1083 else moment.replace(tzinfo=UTC if oid == 1184 else None)
        )
    return Parameter(number)


def _decimal(sent: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", sent)
    if sign not in (0, 0x4000):
        raise InvalidExpression("a number that is no number, or infinite, is no DECIMAL")
    value = Decimal(0)
    for spot, group in enumerate(struct.unpack_from(f"!{count}h", sent, 8)):
        value += Decimal(group).scaleb(4 * (weight - spot))
    return (-value if sign else value).quantize(Decimal(1).scaleb(-scale))


def _array(oid: int, binary: bool, sent: bytes) -> list[Any]:
    """The values of an array of one dimension."""
    if binary:
        body = Body(sent)
        dimensions, _, _ = body.number("i"), body.number("i"), body.number("i")
        if dimensions > 1:
            raise InvalidExpression("a parameter is an array of more than one dimension")
        count = body.number("i") if dimensions else 0
        _ = body.number("i") if dimensions else 0
        values = [body.value() for _ in range(count)]
        return [parameter(oid, True, value, "").value for value in values]
    shown = _decoded(sent)
    if not re.fullmatch(r"\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*\}", shown, re.DOTALL):
        raise InvalidExpression("a parameter is no array of one dimension")
    values = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', shown, re.DOTALL):
        unquoted = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) or plain.strip()
        none = not quoted and plain.strip().upper() == "NULL"
        values.append(None if none else unquoted.encode())
    return [parameter(oid, False, value, "").value for value in values]
