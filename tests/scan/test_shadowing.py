"""Which directory takes the place of which, one pair a row."""

from __future__ import annotations

import pytest

from acid_platform.layout.names import parse_directory
from acid_platform.scan.selection import shadows
from tests.notation import names

TABLE = """
    D10-10v19     d10                 a compaction without inserts replaces them too
    D10-10v19     D10.1
    D10-10v19     d10-10v15
    D5-10v20   d10-10v19
    b5         o
    b5         d1-5v3
    b5         b4v9
    b5v9       b5                  of equal bases the later compaction counts
    b5v9       b5v8
"""
EQUALS = """
    D10-10v19  d10-10v19           the two halves of one compaction
    d10        d10.1               statements of one write
    d10        D10
    D5-10v20   d11
    D5-10v20   d4-5v3
    o          b5
    d1-5       o
    b5         d3-6v8
"""


def rows(table: str) -> list[tuple[str, str]]:
    return [(row.split()[0], row.split()[1]) for row in table.strip().splitlines()]


def asked(one: str, other: str) -> bool:
    """Whether the first directory shadows the second, each in the short form."""
    first, second = (parse_directory(names(word)[0]) for word in (one, other))
    return shadows(first, second)


@pytest.mark.parametrize(("one", "other"), rows(TABLE))
def test_C46_a_directory_takes_the_place_of_another(one: str, other: str) -> None:
    assert asked(one, other) and not asked(other, one)


@pytest.mark.parametrize(("one", "other"), rows(EQUALS))
def test_F12_both_directories_are_read(one: str, other: str) -> None:
    assert not asked(one, other)


def test_C46_the_base_of_a_converted_table_replaces_its_original_files() -> None:
    converted = parse_directory("base_-9223372036854775808_v0000012")
    assert shadows(converted, None) and not shadows(None, converted)
