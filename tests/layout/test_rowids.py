"""The bucket property (F10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import CorruptFile, InvalidDefinition
from acid_platform.layout.acid_keys import Bucket, decode_bucket

VECTORS = [
    (0, 0, 536870912, 0x20000000),
    (1, 0, 536936448, 0x20010000),
    (0, 1, 536870913, 0x20000001),
    (2, 3, 537001987, 0x20020003),
    (4095, 0, 805240832, 0x2FFF0000),
    (4095, 4095, 805244927, 0x2FFF0FFF),
    (1, 1, 536936449, 0x20010001),
]


@pytest.mark.parametrize(("number", "statement", "prop", "in_hex"), VECTORS)
def test_F10_vectors(number: int, statement: int, prop: int, in_hex: int) -> None:
    assert prop == in_hex
    assert Bucket(number, statement).property == prop
    assert decode_bucket(prop) == Bucket(number, statement)


@given(st.integers(0, 4095), st.integers(0, 4095))
def test_round_trip_within_a_signed_int(number: int, statement: int) -> None:
    prop = Bucket(number, statement).property
    assert 0 < prop < 1 << 31
    assert decode_bucket(prop) == Bucket(number, statement)


@pytest.mark.parametrize(("number", "statement"), [(4096, 0), (0, 4096), (-1, 0), (0, -1)])
def test_F10_out_of_range_is_refused_at_write_time(number: int, statement: int) -> None:
    with pytest.raises(InvalidDefinition, match=f"bucket {number}, statement {statement}"):
        _ = Bucket(number, statement).property


@pytest.mark.parametrize("number", [0, 1, 7, 4095])
def test_F10_version_0_is_the_bare_number(number: int) -> None:
    assert decode_bucket(number) == Bucket(number, 0)


@pytest.mark.parametrize("prop", [2 << 29, 3 << 29, -1, -(1 << 31)])
def test_other_versions_are_refused(prop: int) -> None:
    with pytest.raises(CorruptFile, match=str(prop)):
        decode_bucket(prop)
