"""The types of columns for a new table, from all values of texts or of JSON (P66).

A type is chosen if it holds every value as it is written: `007` stays a text, and `0.10` is a
decimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.base.file_bounds import MOST_FIELDS
from acid_platform.layout.types import Column, HiveType, struct_of
from acid_platform.values.arrow_types import arrow_type

_WHOLE = r"^(0|-?[1-9]\d*)$"
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
