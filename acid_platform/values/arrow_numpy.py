"""Arrow values from Python and NumPy and back, without pandas.

pyarrow imports pandas when it first converts a value, to recognise pandas' own objects; that takes
most of a second of a short command. There are none here.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

_DECIMAL_DIGITS = 28
"""The digits of Python's default context, in which a value is scaled without rounding."""
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def values_of(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The numbers, booleans, dates or times of an array, (n,), as a view where that is possible.

    Dates and times are integers. A NULL is an undefined value.
    """
    whole = array
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks or [pa.nulls(0, array.type)]
        whole = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    kind, buffer, end = whole.type, whole.buffers()[1], whole.offset + len(whole)
    if not len(whole):
        return np.empty(0, _dtype(kind))
    if pa.types.is_boolean(kind):
        bits = np.frombuffer(buffer, np.uint8)
        return np.unpackbits(bits, count=end, bitorder="little")[whole.offset :].astype(bool)
    return np.frombuffer(buffer, _dtype(kind), end)[whole.offset :]


def filled(array: pa.Array | pa.ChunkedArray, null: float) -> np.ndarray:
    """As `values_of`, with `null` for NULL."""
    values = values_of(array)
    return np.where(values_of(array.is_valid()), values, null) if array.null_count else values


def from_numpy(values: np.ndarray, nulls: pa.Array | None = None) -> pa.Array:
    """Numbers or booleans, (n,), as an Arrow array, with NULL where the array `nulls` has NULL."""
    kind = pa.from_numpy_dtype(values.dtype)
    data = np.packbits(values, bitorder="little") if kind == pa.bool_() else values
    valid = None
    if nulls is not None and nulls.null_count:
        valid = pa.py_buffer(np.packbits(values_of(nulls.is_valid()), bitorder="little"))
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def group_begins(*columns: np.ndarray) -> np.ndarray:
    """Mask (n,): whether a row of these columns differs from the row before; True for the first."""
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def scalar_of(value: object, kind: pa.DataType) -> pa.Scalar:
    """As `pa.scalar`. Raises Arrow's errors, OverflowError."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, bool) and pa.types.is_boolean(kind):
        return from_numpy(np.array([value]))[0]
    if isinstance(value, int) and not isinstance(value, bool) and pa.types.is_integer(kind):
        whole = from_numpy(np.array([value], np.int64))
        return (whole if kind == whole.type else whole.cast(kind))[0]  # a cast imports much
    if isinstance(value, float) and pa.types.is_floating(kind):
        return from_numpy(np.array([value])).cast(kind)[0]
    if isinstance(value, str) and pa.types.is_string(kind):
        text = value.encode()
        ends = np.array([0, len(text)], np.int32)
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])[0]
    if type(value) is datetime.date and pa.types.is_date32(kind):
        return from_numpy(np.array([value.toordinal() - _FIRST_DAY], np.int32)).cast(kind)[0]
    if isinstance(value, Decimal) and pa.types.is_decimal128(kind) and _fits(value, kind):
        unscaled = int(value.scaleb(kind.scale)).to_bytes(16, "little", signed=True)
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(unscaled)])[0]
    return pa.scalar(value, kind)


def _fits(value: Decimal, kind: pa.DataType) -> bool:
    """Whether the type holds the value as it is."""
    if not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    places = int(kind.scale) + int(exponent)
    return places >= 0 and len(digits) + places <= min(int(kind.precision), _DECIMAL_DIGITS)


def _dtype(kind: pa.DataType) -> np.dtype:
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    letter = (
        "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    )
    return np.dtype(f"{letter}{kind.bit_width // 8}")
