"""A format answers all that it may be asked."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from acid_platform.formats.data_file import DataFile, Keyed, StoredKeys
from acid_platform.formats.orc.orc_file import OrcFile
from acid_platform.formats.parquet import ParquetData

OF_KEYS = {"key_columns", "key_parts", "changes", "bounds", "updates", "key_index_flaw"}
"""What only a format that stores keys is asked."""


@pytest.mark.parametrize(
    ("answers", "left"), [(OrcFile, set()), (ParquetData, OF_KEYS)], ids=["orc", "parquet"]
)
def test_a_format_answers_what_it_may_be_asked(answers: type[DataFile], left: set[str]) -> None:
    asked = {
        name
        for name, member in vars(DataFile).items()
        if inspect.isfunction(member) or isinstance(member, property)
        if "NotImplementedError" in inspect.getsource(getattr(member, "fget", member))
    }
    assert {name for name in asked if getattr(answers, name) is vars(DataFile)[name]} == left


def test_keys_that_are_stored_already_are_not_copied() -> None:
    keys, makers = StoredKeys(*np.arange(6).reshape(3, 2)), np.array([4, 5])
    rows = Keyed(keys, makers, None).stored()
    assert rows.keys is keys and rows.changed_by is makers
