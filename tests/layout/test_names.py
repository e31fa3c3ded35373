"""Names of directories and data files (F1, F2)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform import MalformedName
from acid_platform.layout.names import (
    CONVERTED_BASE,
    BaseName,
    BucketFile,
    DeltaName,
    claims_to_be_acid,
    is_hidden,
    original_bucket,
    parse_bucket_file,
    parse_directory,
    temporary_name,
    temporary_owner,
)
from tests.strategies import acid_names, large_ids

READ = [
    ("base_0000005", BaseName(5)),
    ("base_0000005_v0000020", BaseName(5, 20)),
    ("base_5", BaseName(5)),
    ("base_123456789_v9", BaseName(123456789, 9)),
    ("base_0000005_v0000000", BaseName(5)),
    ("base_-9223372036854775808", BaseName(CONVERTED_BASE)),
    ("base_-9223372036854775808_v0000012", BaseName(CONVERTED_BASE, 12)),
    ("delta_0000003_0000003_0000", DeltaName(3, 3, 0)),
    ("delta_0000003_0000003", DeltaName(3, 3)),
    ("delta_1_1", DeltaName(1, 1)),
    ("delta_052_55", DeltaName(52, 55)),
    ("delta_10000000_10000000_0000", DeltaName(10_000_000, 10_000_000, 0)),
    ("delta_0000001_0000003_v0000012", DeltaName(1, 3, None, 12)),
    ("delta_0000006_0000006_0002_v0000012", DeltaName(6, 6, 2, 12)),
    ("delete_delta_0000002_0000002_0010", DeltaName(2, 2, 10, deletes=True)),
    ("delete_delta_0000001_0000003_v0000012", DeltaName(1, 3, None, 12, deletes=True)),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_F1_any_number_of_digits_is_read(text: str, expected: BaseName | DeltaName) -> None:
    assert parse_directory(text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (BaseName(5), "base_0000005"),
        (BaseName(5, 20), "base_0000005_v0000020"),
        (BaseName(12345678), "base_12345678"),
        (BaseName(CONVERTED_BASE), "base_-9223372036854775808"),
        (DeltaName(3, 3, 1), "delta_0000003_0000003_0001"),
        (DeltaName(1, 3, None, 12), "delta_0000001_0000003_v0000012"),
        (DeltaName(1, 3, None, 0, deletes=True), "delete_delta_0000001_0000003"),
    ],
)
def test_F1_seven_digits_are_written_and_four_for_a_statement(
    name: BaseName | DeltaName, text: str
) -> None:
    assert str(name) == text


@given(acid_names(large_ids))
def test_round_trip(name: BaseName | DeltaName) -> None:
    assert parse_directory(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "delta_x_1",
        "base_01.txt",
        "base_",
        "base_5_20",
        "base_5_v",
        "base_v5",
        "delta_1",
        "delta_1_2_3_4",
        "delta_2_1",
        "delta_-1_1",
        "delta_1_1_",
        "delete_delta_1",
        "delta_1_1_v",
        "delta_1_1_v-3",
        "base_٣",
        "base_5 ",
        "base_--5",
    ],
)
def test_F1_a_name_with_the_prefix_that_does_not_follow_the_grammar(text: str) -> None:
    with pytest.raises(MalformedName, match="warehouse/t/"):
        parse_directory(text, f"warehouse/t/{text}")


@pytest.mark.parametrize(
    "text",
    [
        "HIVE_UNION_SUBDIR_1",
        "month=3",
        "000000_0",
        "delta",
        "abase_1",
        "_tmp_1_x",
        "Delta_1_1",
        "deltas",
    ],
)
def test_other_names_are_not_acid(text: str) -> None:
    assert not claims_to_be_acid(text)
    assert parse_directory(text) is None


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("_tmp_ab12", True),
        (".hive-staging_1", True),
        ("_SUCCESS", True),
        ("_orc_acid_version", True),
        ("delta_1_1", False),
        ("a_b", False),
        ("000000_0", False),
    ],
)
def test_F2_hidden_names(text: str, hidden: bool) -> None:
    assert is_hidden(text) is hidden


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bucket_00000", BucketFile(0)),
        ("bucket_00003_1", BucketFile(3, 1)),
        ("bucket_00000_0", BucketFile(0, 0)),
        ("bucket_4095", BucketFile(4095)),
        ("bucket_00000_flush_length", None),
        ("bucket_", None),
        ("bucket_0_0_0", None),
        ("000000_0", None),
    ],
)
def test_F2_bucket_files(text: str, expected: BucketFile | None) -> None:
    assert parse_bucket_file(text) == expected


@given(st.integers(0, 99_999), st.none() | st.integers(0, 10**9))
def test_bucket_file_round_trip(bucket: int, attempt: int | None) -> None:
    name = BucketFile(bucket, attempt)
    assert parse_bucket_file(str(name)) == name


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("000000_0", 0),
        ("000001_0", 1),
        ("000012_3_copy_4", 12),
        ("000000_0_copy_1", 0),
        ("part-00000.orc", None),
        ("000000", None),
        ("000000_0_copy_", None),
        ("bucket_00000", None),
        ("000000_0_flush_length", None),
    ],
)
def test_F2_original_files(text: str, bucket: int | None) -> None:
    assert original_bucket(text) == bucket


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("_tmp_0000012_ab12", 12),
        ("_tmp_7_x", 7),
        ("_tmp_ab12", None),
        ("_tmp_12", None),
        ("tmp_12_x", None),
        ("_tmp_1f0c-22_x", None),
        ("_tmp_12345678-9abc-4def-8123-456789abcdef", None),
    ],
)
def test_P19_owner_of_a_temporary_directory(name: str, owner: int | None) -> None:
    assert temporary_owner(name) == owner


@given(st.integers(1, 10**12), st.uuids())
def test_P19_temporary_names_tell_their_owner(txn_id: int, token: UUID) -> None:
    for text in (str(token), token.hex):
        name = temporary_name(txn_id, text)
        assert temporary_owner(name) == txn_id
        assert is_hidden(name)
