"""Frozen values to plain JSON and back.

One rule for messages, the journal and the folded tables, so that none of them can drift apart. The
pair for a class is built from its annotations once and kept.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from acid_platform.snapshot.recorded import Contents
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList, ValidWriteIdList

T = TypeVar("T")
Json = Any
Convert = Callable[[Any], Any]

_TEXT_FORMS = (CompactorWriteIdList, ValidWriteIdList, ValidTxnList, Contents)


def encode(record: Any) -> dict[str, Json]:
    """The fields of a record as JSON values, in the order of their declaration."""
    fields: dict[str, Json] = _pair_of(type(record))[0](record)
    return fields


def decode(cls: type[T], data: dict[str, Json]) -> T:
    """The record that `encode` was given. An absent field keeps its default."""
    try:
        whole: T = _pair_of(cls)[1](data)
        return whole
    except KeyError:
        present = {name: read(data[name]) for name, _, read in _members(cls) if name in data}
        return cls(**present)


_known: dict[type[Any], tuple[tuple[str, Convert, Convert], ...]] = {}
_compiled: dict[type[Any], tuple[Convert, Convert]] = {}


def _pair_of(cls: type[Any]) -> tuple[Convert, Convert]:
    """How to write a record, and how to read one that has every field: as one expression each,
    since every request passes here several times."""
    known = _compiled.get(cls)
    if known is None:
        names: dict[str, Any] = {"cls": cls}
        writes, reads = [], []
        for number, (name, write, read) in enumerate(_members(cls)):
            names[f"w{number}"], names[f"r{number}"] = write, read
            value, given = f"o.{name}", f"o[{name!r}]"
            writes.append(f"{name!r}: {value if write is _same else f'w{number}({value})'}")
            reads.append(given if read is _same else f"r{number}({given})")
        known = (
            eval(f"lambda o: {{{', '.join(writes)}}}", names),
            eval(f"lambda o: cls({', '.join(reads)})", names),
        )
        _compiled[cls] = known
    return known


def _members(cls: type[Any]) -> tuple[tuple[str, Convert, Convert], ...]:
    known = _known.get(cls)
    if known is None:
        hints = get_type_hints(cls)
        known = tuple((one.name, *_pair(hints[one.name])) for one in fields(cls))
        _known[cls] = known
    return known


def _same(value: Any) -> Any:
    return value


_value_of: Convert = attrgetter("_value_")
"""Of a member of an enum; `value` itself is a property in Python."""


def _pair(hint: Any) -> tuple[Convert, Convert]:
    """How to write and how to read a value of this annotation."""
    if isinstance(hint, NewType):
        return _pair(hint.__supertype__)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        write, read = _pair(next(one for one in args if one is not type(None)))
        return _optional(write), _optional(read)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return _each(*_pair(args[0]))
        pairs = [_pair(one) for one in args]
        return (
            lambda values: [write(v) for (write, _), v in zip(pairs, values, strict=True)],
            lambda values: tuple(read(v) for (_, read), v in zip(pairs, values, strict=True)),
        )
    if origin is dict:
        write, read = _pair(args[1])
        return (
            lambda values: {key: write(v) for key, v in values.items()},
            lambda values: {key: read(v) for key, v in values.items()},
        )
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            return _value_of, hint
        if hint in _TEXT_FORMS:
            return str, hint.parse
        if is_dataclass(hint):
            return encode, lambda data: decode(hint, data)
    return _same, _same


def _optional(convert: Convert) -> Convert:
    return _same if convert is _same else lambda value: None if value is None else convert(value)


def _each(write: Convert, read: Convert) -> tuple[Convert, Convert]:
    return (
        list if write is _same else lambda values: [write(one) for one in values],
        tuple if read is _same else lambda values: tuple(read(one) for one in values),
    )
