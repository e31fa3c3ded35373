"""Dates that Python's types can't hold are shown as text, and named where there is no text."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from acid_platform import Warehouse, WrongType
from acid_platform.sql.answers import rows_of
from acid_platform.values.row_streams import far_dates_as_text, far_dates_named

DAYS = {3_670_000: "12018-02-13", -800_000: "-0221-09-04"}


@pytest.mark.parametrize(("days", "text"), DAYS.items())
def test_a_far_date_is_text_and_a_near_one_stays(days: int, text: str) -> None:
    rows = pa.table({"far": pa.array([days, 1], pa.date32()), "near": pa.array([1, 2])})
    near = pa.table({"d": pa.array([1, None], pa.date32())})
    assert far_dates_as_text(rows).column("far").to_pylist() == [text, "1970-01-02"]
    assert far_dates_as_text(near).to_pylist() == [{"d": date(1970, 1, 2)}, {"d": None}]


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="no number"), far_dates_named():
        raise ValueError("no number")


@pytest.mark.more
def test_a_table_with_far_dates_is_shown_and_its_values_are_refused(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "wh", engine="local") as warehouse:
        table = warehouse.create_table("db.t", "d date, at timestamp, s struct<d: date>")
        days = pa.array([3_670_000], pa.date32())
        moments = pa.array([2**58], pa.timestamp("us"))
        structs = pa.StructArray.from_arrays([days], ["d"])
        table.insert(pa.table({"d": days, "at": moments, "s": structs}))
        result = warehouse.sql("SELECT d, at FROM db.t")
        for values in (result.collect, result.to_pandas, result.head, table.to_pandas):
            with pytest.raises(WrongType, match=r"beyond the years 1 to 9999.*to_arrow"):
                values()
        assert result.to_arrow().num_rows == 1
        shown = rows_of(result)
        assert shown is not None
        assert shown.rows == ({"d": "12018-02-13", "at": "11103-08-29 17:22:31.711744"},)
        nested = warehouse.sql("SELECT s FROM db.t")
        with pytest.raises(WrongType, match="beyond the years"):
            rows_of(nested)
        warehouse.metastore.stop()
