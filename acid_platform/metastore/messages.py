"""Messages of the metastore: operations, and frozen values as plain JSON and back.

Messages, the log and its snapshots share this conversion, so that they cannot drift apart.

The pair of functions for a class is built once from its annotations.

A dataclass becomes an object with its fields in the order of their declaration; an absent field
takes its default. Where the annotation has several classes, `is` names the one. A NamedTuple
becomes an array; values missing at its end take their defaults.

A value of another type than its annotation is refused when it is read, so that a faulty client
can't bring one into the state. Whole numbers have 64 bits.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import (
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    NewType,
    TypedDict,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.row_sets import RowSet

T = TypeVar("T")
Json = Any
JsonObject = dict[str, object]
Convert = Callable[[Any], Any]

json_text = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""The text of JSON values, without blanks."""

FLAT = {"flat": True}
"""Field metadata: the fields of this record are written beside those of the outer record."""

_WHOLE = 1 << 63
_TEXT_FORMS = (CompactorWriteIdList, ValidWriteIdList, ValidTxnList, RecordedFiles, RowSet)


def encode(record: Any) -> dict[str, Json]:
    """The fields of a record as JSON values, in the order of their declaration."""
    fields: dict[str, Json] = _pair_of(type(record))[0](record)
    return fields


def decode(cls: type[T], data: dict[str, Json]) -> T:
    """The record that was passed to `encode`.

    Raises TypeError, KeyError, ValueError, AttributeError or IndexError if the JSON does not fit.
    """
    try:
        whole: T = _pair_of(cls)[1](data)
        return whole
    except KeyError:
        present = {
            member.name: member.read(data if member.how == "flat" else data[member.name])
            for member in _members(cls)
            if member.how == "flat" or member.name in data
        }
        return cls(**present)


def per_class(compute: Callable[[type[Any]], T]) -> Callable[[type[Any]], T]:
    """Keeps what `compute` says of each class."""
    return cache(compute)  # type: ignore[arg-type,return-value,unused-ignore]


class Member(NamedTuple):
    """A field of a class, and the functions that write and read it."""

    name: str
    write: Convert
    read: Convert
    how: str
    default: object
    keyword: str
    """Stands before its value where the class is called."""


@per_class
def _pair_of(cls: type[Any]) -> tuple[Convert, Convert]:
    """The functions that write a record and read one in which no field is absent.

    Each is compiled from one expression, since every request passes here several times.
    """
    names: dict[str, Any] = {"cls": cls}
    writes, reads = [], []
    for number, (name, write, read, how, default, keyword) in enumerate(_members(cls)):
        names[f"w{number}"], names[f"r{number}"] = write, read
        value, item = f"o.{name}", f"o[{name!r}]"
        written = value if write is _same else f"w{number}({value})"
        converted = item if read is _same else f"r{number}({item})"
        if how == "flat":
            writes.append(f"**w{number}({value})")
            reads.append(f"{keyword}r{number}(o)")
        elif how == "brief":
            names[f"d{number}"] = default
            writes.append(f"**({{{name!r}: {written}}} if {value} else {{}})")
            reads.append(f"{keyword}{converted} if {name!r} in o else d{number}")
        else:
            writes.append(f"{name!r}: {written}")
            reads.append(f"{keyword}{converted}")
    return (
        eval(f"lambda o: {{{', '.join(writes)}}}", names),
        eval(f"lambda o: cls({', '.join(reads)})", names),
    )


@per_class
def _members(cls: type[Any]) -> tuple[Member, ...]:
    hints = get_type_hints(cls)
    return tuple(
        Member(
            each.name,
            *converters(hints[each.name]),
            _how(each.metadata, each.default),
            each.default,
            f"{each.name}=" if each.kw_only else "",
        )
        for each in fields(cls)
    )


def columns_of(cls: type[Any]) -> dict[str, str]:
    """The columns of a record with their types in SQL; JSON is text."""
    hints, columns = get_type_hints(cls), {}
    for each in fields(cls):
        hint = hints[each.name]
        if each.metadata.get("flat"):
            columns.update(columns_of(hint))
        else:
            columns[each.name] = _sql_type(hint)
    return columns


def _sql_type(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [arg for arg in get_args(hint) if arg is not type(None)]
        return _sql_type(kinds[0]) if len(kinds) == 1 else "JSON"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _sql_type(type(next(iter(hint)).value))
    if hint in _TEXT_FORMS:
        return "VARCHAR"
    return {int: "BIGINT", bool: "BOOLEAN", str: "VARCHAR"}.get(hint, "JSON")


def left_out(cls: type[Any]) -> dict[str, object]:
    """The values that are omitted while they are empty, by their names."""
    hints, values = get_type_hints(cls), {}
    for name, _, _, how, default, _ in _members(cls):
        if how == "flat":
            values.update(left_out(hints[name]))
        elif how == "brief":
            values[name] = default
    return values


def ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending, disjoint ranges that hold exactly these ids."""
    spans: list[tuple[int, int]] = []
    for number in sorted(ids):
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def range_text(spans: Iterable[tuple[int, int]]) -> str:
    """As `7,9-12`, the form that `acid metastore resolve` takes."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _how(metadata: Any, default: object) -> str:
    if metadata.get("flat"):
        return "flat"
    if metadata.get("brief"):
        assert default is not MISSING and not default, "what is not written is read as the default"
        return "brief"
    return ""


def _same(value: Any) -> Any:
    return value


def _typed(name: str, kind: type[Any]) -> Convert:
    """Reads a value of exactly this type."""

    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{type(value).__name__} instead of {name}")
        return value

    return read


def _read_whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{type(value).__name__} instead of a whole number")
    if not -_WHOLE <= value < _WHOLE:
        raise ValueError("a whole number has more than 64 bits")
    return value


def _read_number(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"{type(value).__name__} instead of a number")
    if not -_WHOLE <= value <= _WHOLE:  # neither an infinity nor NaN
        raise ValueError("a number is out of range")
    return value


def _array(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{type(value).__name__} instead of an array")
    return value


_object = _typed("an object", dict)
_PLAIN: dict[Any, Convert] = {
    str: _typed("a text", str),
    int: _read_whole,
    bool: _typed("true or false", bool),
    float: _read_number,
}


_value_of: Convert = attrgetter("_value_")
"""The value of an enum member; the attribute `value` is a slower Python property."""


def converters(hint: Any) -> tuple[Convert, Convert]:
    """The functions that write and read a value of this annotation."""
    if isinstance(hint, NewType):
        return converters(hint.__supertype__)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [arg for arg in args if arg is not type(None)]
        write, read = converters(kinds[0]) if len(kinds) == 1 else _one_of(kinds)
        return (_optional(write), _optional(read)) if len(kinds) < len(args) else (write, read)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return _each(tuple, *converters(args[0]))
        return _row(tuple, [converters(arg) for arg in args])
    if origin is list:
        return _each(list, *converters(args[0]))
    if origin is dict:
        return _by_key(args[0], *converters(args[1]))
    if hint in _PLAIN:
        return _same, _PLAIN[hint]
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            return _value_of, hint
        if hint in _TEXT_FORMS:
            return str, hint.parse
        if is_dataclass(hint):
            return _pair_of(hint)[0], lambda data: decode(hint, data)
        if issubclass(hint, tuple) and hasattr(hint, "_fields"):
            hints = get_type_hints(hint)
            return _row(hint, [converters(hints[name]) for name in hint._fields])
    return _same, _same


def _one_of(kinds: Sequence[type[Any]]) -> tuple[Convert, Convert]:
    """Converts records of several classes: the name of the class comes with the fields."""
    by_name = {kind.__name__: kind for kind in kinds}
    return (
        lambda record: {"is": type(record).__name__, **encode(record)},
        lambda data: decode(by_name[data["is"]], data),
    )


def _optional(convert: Convert) -> Convert:
    return _same if convert is _same else lambda value: None if value is None else convert(value)


def _each(kind: Convert, write: Convert, read: Convert) -> tuple[Convert, Convert]:
    return (
        list if write is _same else lambda values: [write(value) for value in values],
        lambda values: kind([read(value) for value in _array(values)]),
    )


def _by_key(key: Any, write: Convert, read: Convert) -> tuple[Convert, Convert]:
    if key is int:  # JSON keys are always strings.
        return (
            lambda values: {str(number): write(value) for number, value in values.items()},
            lambda values: {
                _read_whole(int(number)): read(value) for number, value in _object(values).items()
            },
        )
    return (
        dict if write is _same else lambda values: {k: write(value) for k, value in values.items()},
        lambda values: {k: read(value) for k, value in _object(values).items()},
    )


def _row(kind: type[Any], pairs: list[tuple[Convert, Convert]]) -> tuple[Convert, Convert]:
    """Converts a tuple or NamedTuple in which each place has a type of its own."""
    count = len(pairs)
    names: dict[str, Any] = {}
    writes = []
    for number, (write, _) in enumerate(pairs):
        names[f"w{number}"] = write
        writes.append(f"o[{number}]" if write is _same else f"w{number}(o[{number}])")
    reads = [read for _, read in pairs]
    named = kind is not tuple

    def parse(values: Any) -> Any:
        if isinstance(values, dict):  # the first value alone
            values = [values]
        _array(values)
        if len(values) > count or (not named and len(values) < count):
            raise ValueError(f"{len(values)} values instead of {count}")
        read = [convert(value) for convert, value in zip(reads, values, strict=False)]
        return kind(*read) if named else tuple(read)

    return eval(f"lambda o: [{', '.join(writes)}]", names), parse


A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
Row = dict[str, Any]
"""A row of a listing for people: SHOW, `status`."""
Values = list[list[Any]]
"""The rows of a query's result."""


class Answer(TypedDict, total=False):
    """An answer as JSON: a `value`, an `error` (class and text), or in `ask` the advice to ask
    again."""

    value: JsonObject
    error: list[str]
    ask: str
    transient: bool


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class MetastoreOperation(Generic[A_co]):
    """A message to the metastore, with its arguments as fields and the type of its answer.

    A subclass becomes a frozen dataclass. A handler for it must exist in the rules (rules.machine)
    or in the server (server.group_commit, server.server).

    `op` is its name in messages and in kept outcomes, `answers` the JSON key of the answer, unless
    the answer is a record of several fields. `outcome` is the record that is kept of the answer if
    each answer is rebuilt from the state. `repeatable`: sending it again does no harm; the outcome
    of every other operation is kept (P3).
    """

    op: ClassVar[str]
    answers: ClassVar[str]
    outcome: ClassVar[type | None]
    repeatable: ClassVar[bool]
    reads: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        *,
        op: str = "",
        answers: str = "",
        outcome: type | None = None,
        repeatable: bool = False,
    ) -> None:
        dataclass(frozen=True)(cls)
        if op:
            cls.op, cls.answers, cls.outcome = op, answers, outcome
            cls.repeatable = repeatable or cls.reads
            OPERATIONS[op] = cls

    @property
    def patience(self) -> float:
        """How many seconds it may wait in the metastore: its field `wait`, if it has one."""
        return float(getattr(self, "wait", None) or 0)


class Unrecorded(MetastoreOperation[A_co]):
    """An operation that records nothing: it is repeatable, and is answered between two rounds."""

    reads = True


OPERATIONS: dict[str, type[MetastoreOperation[Any]]] = {}
"""All operations by their names."""


def read_operation(op: str, args: JsonObject) -> MetastoreOperation[Any]:
    """Raises UnsupportedStatement for an unknown name, and whatever `codec.decode` raises."""
    kind = OPERATIONS.get(op)
    if kind is None:
        raise UnsupportedStatement(f"the metastore has no operation {op!r}")
    return decode(kind, args)


def answer_type(kind: type[MetastoreOperation[Any]]) -> Any:
    return get_args(kind.__orig_bases__[0])[0]  # type: ignore[attr-defined]


def write_answer(kind: type[MetastoreOperation[A]], answer: A) -> JsonObject:
    written: JsonObject = _converters_of(kind)[0](answer)
    return written


def read_answer(kind: type[MetastoreOperation[A]], value: JsonObject) -> A:
    answer: A = _converters_of(kind)[1](value)
    return answer


@per_class
def _converters_of(kind: type[MetastoreOperation[Any]]) -> tuple[Convert, Convert]:
    hint = answer_type(kind)
    if hint is type(None):
        return lambda _answer: {}, lambda _value: None
    write, read = converters(hint)
    key = kind.answers
    if not key:
        return write, read
    return lambda answer: {key: write(answer)}, lambda value: read(value[key])
