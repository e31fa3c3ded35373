"""Frames have the table's values, although pandas has no whole numbers beside missing ones."""

from __future__ import annotations

import pyarrow as pa
import pytest

from acid_platform.values.row_streams import to_frame

LARGE = (1 << 53) + 1
VALUES = [
    (pa.int64(), [LARGE, None, 5]),
    (pa.int64(), [-LARGE, None]),
    (pa.int64(), [LARGE, 5]),
    (pa.list_(pa.int64()), [[LARGE, None], None]),
    (pa.struct({"a": pa.int64()}), [{"a": LARGE}, {"a": None}, None]),
    (pa.map_(pa.string(), pa.int64()), [[("k", LARGE), ("l", None)]]),
    (pa.list_(pa.struct({"a": pa.list_(pa.int64())})), [[{"a": [None, LARGE]}]]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=str)
def test_a_large_whole_number_beside_a_null_stays_that_number(
    kind: pa.DataType, values: list[object]
) -> None:
    table = pa.table({"v": pa.array(values, kind), "w": [1] * len(values)})
    for part in (table, pa.concat_tables([table, table.slice(1)])):
        frame = to_frame(part)
        assert pa.array(frame["v"], kind).to_pylist() == part["v"].to_pylist()
        assert frame["w"].dtype == "int64"


def test_small_numbers_beside_nulls_are_floats_as_everywhere_in_pandas() -> None:
    table = pa.table({"v": pa.array([1, None]), "d": pa.array([0, None], pa.date32())})
    frame = to_frame(table)
    assert (frame["v"].dtype, frame["d"].dtype) == ("float64", "object")
    assert to_frame(table.slice(0, 0))["v"].dtype == "int64"
