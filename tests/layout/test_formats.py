"""Which kind of table the properties declare (F5)."""

from __future__ import annotations

import pytest

from acid_platform.layout.formats import is_insert_only


@pytest.mark.parametrize(
    ("properties", "insert_only"),
    [
        ({}, False),
        ({"transactional": "true"}, False),
        ({"transactional_properties": "default"}, False),
        ({"transactional_properties": "insert_only"}, True),
        ({"transactional_properties": "INSERT_ONLY"}, True),
    ],
)
def test_F5_a_property_makes_a_table_insert_only(
    properties: dict[str, str], insert_only: bool
) -> None:
    assert is_insert_only(properties) is insert_only
