"""A file that is the source of an asset takes no more memory than an imported one (P65)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from acid_platform.errors import CorruptFile
from acid_platform.orchestration.components import rows_of


def test_P65_a_file_of_an_asset_is_bounded_too(tmp_path: Path) -> None:
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 9_000, pa.int32()), ["x" * (1 << 20)])
    for file, column in {small: texts[:3], large: texts}.items():
        parquet.write_table(
            pa.table({"v": column}), file, compression="zstd", dictionary_pagesize_limit=1 << 30
        )
    assert rows_of(str(small), ()).num_rows == 3
    with pytest.raises(CorruptFile, match=r"large\.parquet: row group 0 takes few bytes"):
        rows_of(str(large), ())
