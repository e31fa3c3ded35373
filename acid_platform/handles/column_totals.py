"""Counts, exact sums and bounds of columns, the same from a source as from the files of a table.

They don't depend on the order of the rows or on the types in which the values come: an integer of a
source and the decimal that a table made of it have one sum (P50).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.layout.types import INTEGRAL, TIMESTAMPS, Column
from acid_platform.values.arrow_numpy import values_of
from acid_platform.values.arrow_values import BYTES_TYPES, TEXT_TYPES, is_one_of, plain_values

_Sums = dict[str, Fraction]
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_HALF = 27
"""Bits of the lower part of a float's digits; sums of both parts are exact in 64 bits."""
_LOWEST = 1_100
"""No float has a lower exponent than minus this."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ColumnTotals:
    """For each of the columns: how many values are not NULL, and depending on its type their exact
    sum, the bytes of the texts, or the first and last time.

    `source`: the types in which the values are read at first. Where a value changes with its type,
    as a text that becomes a number, only the number of values is compared.
    """

    def __init__(self, columns: Sequence[Column], source: pa.Schema) -> None:
        kinds = {field.name.lower(): plain_values(pa.nulls(0, field.type)).type for field in source}
        self._measures = {
            column.name: _measure(column.type.kind, kinds[column.name])
            for column in columns
            if column.name in kinds
        }
        self.rows = 0
        self._counts: Counter[str] = Counter()
        self._sums: dict[tuple[str, str], Fraction] = {}
        self._ends: dict[str, tuple[Fraction, Fraction]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are measured."""
        return tuple(self._measures)

    def like(self) -> ColumnTotals:
        """Empty totals of the same measures."""
        other = ColumnTotals((), pa.schema([]))
        other._measures = self._measures
        return other

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            name = name.lower()
            if name not in self._measures:
                continue
            values = plain_values(array).drop_null()
            self._counts[name] += len(values)
            measure = self._measures[name]
            if measure is None or not len(values):
                continue
            if measure is ColumnMeasure.TIMES:
                first, last = _ends(values)
                low, high = self._ends.get(name, (first, last))
                self._ends[name] = min(low, first), max(high, last)
                continue
            for what, total in _SUMS[measure](values).items():
                self._sums[name, what] = self._sums.get((name, what), Fraction()) + total

    def figures(self) -> dict[str, object]:
        """Each figure by its name, such as `sum of amount`."""
        named: dict[str, object] = {"rows": self.rows}
        for name in self._measures:
            named[f"values of {name}"] = self._counts[name]
        for (name, what), total in self._sums.items():
            named[f"{what} of {name}"] = total
        for name, (first, last) in self._ends.items():
            named |= {f"first {name}": _Moment(first), f"last {name}": _Moment(last)}
        return named


def differences(source: Mapping[str, object], stored: Mapping[str, object]) -> list[str]:
    """What differs, such as `sum of amount: 12.50 in the source, 12.40 stored`."""
    return [
        f"{name}: {_shown(source.get(name))} in the source, {_shown(stored.get(name))} stored"
        for name in {**source, **stored}
        if source.get(name) != stored.get(name)
    ]


class _Moment(Fraction):
    """Seconds since 1970, UTC."""


def _shown(value: object) -> str:
    if isinstance(value, _Moment):
        micros = int(value * 10**6)
        try:
            return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(" ")
        except OverflowError:
            return f"{micros} µs after 1970"
    if isinstance(value, Fraction):
        with localcontext(prec=60):
            return str(Decimal(value.numerator) / value.denominator)
    return "none" if value is None else str(value)


# --- measures -------------------------------------------------------------------------------------


class ColumnMeasure(Enum):
    """What is compared of a column beside the number of its values."""

    WHOLE = "the sum of integers or decimals"
    DOUBLES = "the sum of floats"
    SINGLES = "the sum of floats, each as a column of `float` stores it"
    TEXTS = "the bytes of texts"
    TIMES = "the first and last date or time"


def _measure(kind: str, source: pa.DataType) -> ColumnMeasure | None:
    """What is compared of a column whose type in the table is `kind`."""
    exact = pa.types.is_integer(source) or pa.types.is_decimal(source)
    if kind in (*INTEGRAL, "decimal"):
        return ColumnMeasure.WHOLE if exact else None
    if kind in ("float", "double"):
        if not exact and not pa.types.is_floating(source):
            return None
        return ColumnMeasure.SINGLES if kind == "float" else ColumnMeasure.DOUBLES
    if kind in ("date", *TIMESTAMPS):
        timed = pa.types.is_date(source) or pa.types.is_timestamp(source)
        return ColumnMeasure.TIMES if timed else None
    if kind in ("string", "binary") and is_one_of(source, (*TEXT_TYPES, *BYTES_TYPES)):
        return ColumnMeasure.TEXTS
    return None


def _exact_sum(values: pa.Array) -> _Sums:
    if pa.types.is_decimal(values.type):
        return {"sum": Fraction(pc.sum(values.cast(pa.decimal256(76, values.type.scale))).as_py())}
    numbers = values_of(values)
    if numbers.itemsize < 8:
        return {"sum": Fraction(int(numbers.sum(dtype=np.int64)))}
    high, low = numbers >> 32, numbers & 0xFFFFFFFF  # whose sums don't overflow
    return {"sum": Fraction((int(high.sum()) << 32) + int(low.sum()))}


def _float_sum(values: pa.Array, single: bool = False) -> _Sums:
    """The exact sum of the finite numbers as they are stored, and how many are NaN or infinite."""
    if pa.types.is_integer(values.type):  # those that are not exact are refused
        return _exact_sum(values)
    if pa.types.is_decimal(values.type):
        numbers = np.array([float(value) for value in values.to_pylist()])
    else:
        numbers = values_of(values).astype(np.float64)
    if single:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    fractions, exponents = np.frexp(finite)
    digits = np.ldexp(fractions, 53).astype(np.int64)
    group = exponents + _LOWEST  # bincount takes no negative numbers
    high = np.bincount(group, digits >> _HALF)
    low = np.bincount(group, digits & ((1 << _HALF) - 1))
    total = Fraction()
    for place in np.flatnonzero((high != 0) | (low != 0)).tolist():
        sum_of_digits = (int(high[place]) << _HALF) + int(low[place])
        total += sum_of_digits * Fraction(2) ** (place - _LOWEST - 53)
    others = {
        "number of NaN": np.isnan(numbers).sum(),
        "number of Infinity": np.isposinf(numbers).sum(),
        "number of -Infinity": np.isneginf(numbers).sum(),
    }
    return {"sum": total, **{what: Fraction(int(n)) for what, n in others.items() if n}}


def _text_bytes(values: pa.Array) -> _Sums:
    return {"bytes": Fraction(pc.sum(pc.binary_length(values)).as_py())}


def _ends(values: pa.Array) -> tuple[Fraction, Fraction]:
    """The first and last one, in seconds since 1970, UTC."""
    numbers = values_of(values)
    if pa.types.is_date32(values.type):
        unit = Fraction(86_400)
    else:
        unit = Fraction(1, _PER_SECOND["ms" if pa.types.is_date(values.type) else values.type.unit])
    return int(numbers.min()) * unit, int(numbers.max()) * unit


_SUMS: dict[ColumnMeasure, Callable[[pa.Array], _Sums]] = {
    ColumnMeasure.WHOLE: _exact_sum,
    ColumnMeasure.DOUBLES: _float_sum,
    ColumnMeasure.SINGLES: partial(_float_sum, single=True),
    ColumnMeasure.TEXTS: _text_bytes,
}
