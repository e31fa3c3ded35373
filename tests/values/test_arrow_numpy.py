"""Converting between Arrow, Python and NumPy gives what pyarrow's own conversions give."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from acid_platform.values.arrow_types import filled, from_numpy, scalar_of, values_of

KINDS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("cut", [slice(0, 20), slice(3, 20), slice(9, 9), slice(8, 17)], ids=str)
def test_numbers_are_those_of_pyarrow(kind: pa.DataType, cut: slice) -> None:
    numbers = [number % 2 if kind == pa.bool_() else number for number in range(20)]
    with_nulls = [None if number % 3 == 0 else value for number, value in enumerate(numbers)]
    whole = pa.array(numbers, pa.int64()).cast(kind)[cut]
    holed = pa.array(with_nulls, pa.int64()).cast(kind)[cut]
    expected = whole.to_numpy(zero_copy_only=False)
    for given in (whole, pa.chunked_array([whole[:4], whole[4:]])):
        np.testing.assert_array_equal(values_of(given), expected)
        assert values_of(given).dtype == expected.dtype
    np.testing.assert_array_equal(
        filled(holed, 1), holed.fill_null(pa.scalar(1).cast(kind)).to_numpy(zero_copy_only=False)
    )
    assert from_numpy(expected) == whole
    assert from_numpy(expected, holed) == holed
    from_numpy(expected, holed).validate(full=True)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns")], ids=str)
def test_dates_and_times_are_integers(kind: pa.DataType) -> None:
    moments = pa.array([datetime.datetime(1969, 12, 31), datetime.datetime(2024, 2, 29)]).cast(kind)
    integers = moments.view(f"int{kind.bit_width}")
    np.testing.assert_array_equal(values_of(moments), integers.to_numpy())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *((None, kind) for kind in (*KINDS, pa.string(), pa.date32(), pa.decimal128(9, 2))),
        *((number, kind) for number in (-7, 0, 100) for kind in KINDS[1:5]),
        (2**63 - 1, pa.int64()),
        (True, pa.bool_()),
        (False, pa.bool_()),
        (0.1, pa.float32()),
        (0.1, pa.float64()),
        (1e40, pa.float32()),
        ("", pa.string()),
        ("naïve 𝛑", pa.string()),
        (datetime.date(1, 1, 1), pa.date32()),
        (datetime.date(9999, 12, 31), pa.date32()),
        (Decimal("1.25"), pa.decimal128(9, 2)),
        (Decimal("-1.2"), pa.decimal128(9, 2)),
        (Decimal("1E+3"), pa.decimal128(9, 2)),
        (Decimal("9999999.99"), pa.decimal128(9, 2)),
        (Decimal("-9") * 10**27, pa.decimal128(38, 0)),
        (Decimal("9" * 38), pa.decimal128(38, 0)),
        (datetime.datetime(2024, 2, 29, 1, 2, 3, 4), pa.timestamp("us")),
        (b"\x00\xff", pa.binary()),
    ],
    ids=str,
)
def test_a_scalar_is_that_of_pyarrow(value: object, kind: pa.DataType) -> None:
    assert scalar_of(value, kind).equals(pa.scalar(value, kind))
    assert scalar_of(value, kind).type == kind


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (300, pa.int8()),
        (2**63, pa.int64()),
        ("x", pa.int64()),
        (Decimal("1.255"), pa.decimal128(9, 2)),
        (Decimal("10000000"), pa.decimal128(9, 2)),
        (Decimal("NaN"), pa.decimal128(9, 2)),
    ],
    ids=str,
)
def test_a_scalar_that_does_not_fit_is_refused_as_by_pyarrow(
    value: object, kind: pa.DataType
) -> None:
    with pytest.raises(Exception) as theirs:
        pa.scalar(value, kind)
    with pytest.raises(theirs.type):
        scalar_of(value, kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_array_without_chunks_has_no_values(kind: pa.DataType) -> None:
    nothing = pa.chunked_array([], kind)
    assert values_of(nothing).shape == (0,)
    assert values_of(nothing).dtype == pa.nulls(0, kind).to_numpy(zero_copy_only=False).dtype


@pytest.mark.more
def test_nothing_here_imports_pandas() -> None:
    program = """
import datetime, sys
import numpy as np, pyarrow as pa
from acid_platform.values.arrow_types import filled, from_numpy, scalar_of, values_of
values_of(pa.chunked_array([], pa.int64()))
array = from_numpy(np.arange(3), from_numpy(np.arange(3)))
for value, kind in ((1, pa.int8()), (.5, pa.float32()), ("x", pa.string()), (True, pa.bool_()),
                    (None, pa.date32()), (datetime.date(2024, 1, 1), pa.date32())):
    filled(pa.repeat(scalar_of(value, kind), 2) if kind != pa.string() else array, 0)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
