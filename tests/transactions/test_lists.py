"""ValidTxnList and ValidWriteIdList: S2 to S16."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.transactions import (
    NONE_OPEN,
    MalformedList,
    RangeResponse,
    ValidTxnList,
    ValidWriteIdList,
)
from tests.strategies import MAX_ID, ids, txn_lists, write_id_lists

ALL, SOME, NONE = RangeResponse.ALL, RangeResponse.SOME, RangeResponse.NONE
TXNS = ValidTxnList.parse("12:5:5,9:7,10")
WRITES = ValidWriteIdList.parse("db.t:12:5:5,9:7,10")


# --- transactions -------------------------------------------------------------------------------


def test_S2_reader_sees_nothing_above_itself_and_itself() -> None:
    server = ValidTxnList.of(7, open=[4, 6], aborted=[5])
    mine = server.for_reader(6)
    assert str(mine) == "6:4:4:5"
    assert mine.is_valid(6)
    assert not mine.is_valid(7)
    assert not mine.is_valid(4)


def test_S2_without_a_transaction_the_list_is_unchanged() -> None:
    server = ValidTxnList.of(7, open=[4, 6], aborted=[5])
    assert server.for_reader(0) is server


@given(txn_lists(), st.integers(1, 30))
def test_S2_own_transaction_is_never_an_exception(server: ValidTxnList, me: int) -> None:
    mine = server.for_reader(me)
    assert me not in (*mine.open, *mine.aborted)
    assert mine.is_valid(me) == (me <= server.high_watermark)
    for other in range(1, me):
        assert mine.is_valid(other) == server.is_valid(other)
        assert mine.is_aborted(other) == server.is_aborted(other)


@pytest.mark.parametrize(
    ("txn", "valid", "aborted"),
    [
        (1, True, False),
        (4, True, False),
        (5, False, False),
        (6, True, False),
        (7, False, True),
        (9, False, False),
        (10, False, True),
        (12, True, False),
        (13, False, False),
    ],
)
def test_S3_valid_and_aborted(txn: int, valid: bool, aborted: bool) -> None:
    assert (TXNS.is_valid(txn), TXNS.is_aborted(txn)) == (valid, aborted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:5:5,9:7,10", ValidTxnList(12, (5, 9), (7, 10), 5)),
        ("12:9223372036854775807::", ValidTxnList(12, (), (), NONE_OPEN)),
        ("12:9223372036854775807::7", ValidTxnList(12, (), (7,), NONE_OPEN)),
    ],
)
def test_S5_text_form(text: str, expected: ValidTxnList) -> None:
    assert ValidTxnList.parse(text) == expected
    assert str(expected) == text


def test_S5_exceptions_are_sorted_again_and_min_open_is_taken_as_given() -> None:
    assert ValidTxnList.parse("12:3:9,5:10,7") == ValidTxnList(12, (5, 9), (7, 10), 3)


def test_S5_repeated_ids_count_once() -> None:
    once = ValidTxnList.parse("12:5:5,5:")
    assert once.open == (5,)
    assert once.range_valid(5, 6) is SOME


@pytest.mark.parametrize(
    "text", ["12", "", "12:5", "12:5:5", "12:5:5:7:9", "x:5::", "12::5:", "12:5:five:", "12:5::7;8"]
)
def test_S5_malformed(text: str) -> None:
    with pytest.raises(MalformedList):
        ValidTxnList.parse(text)


def test_S5_default_list_sees_everything() -> None:
    everything = ValidTxnList.everything()
    assert everything.is_valid(2**63 - 1)
    assert str(everything) == "9223372036854775807:9223372036854775807::"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 4, ALL),
        (5, 5, NONE),
        (4, 6, SOME),
        (11, 14, SOME),
        (13, 15, NONE),
    ],
)
def test_S6_ranges(low: int, high: int, expected: RangeResponse) -> None:
    assert TXNS.range_valid(low, high) is expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (7, 7, ALL),
        (6, 8, SOME),
        (1, 6, NONE),
        (8, 9, NONE),
        (9, 10, SOME),
    ],
)
def test_S6_aborted_ranges(low: int, high: int, expected: RangeResponse) -> None:
    assert TXNS.range_aborted(low, high) is expected


# --- write ids ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write_id", "valid"),
    [
        (0, True),
        (4, True),
        (5, False),
        (7, False),
        (8, True),
        (12, True),
        (13, False),
    ],
)
def test_S11_valid_write_ids(write_id: int, valid: bool) -> None:
    assert WRITES.is_valid(write_id) is valid


@pytest.mark.parametrize(
    ("write_id", "valid"),
    [
        (3, True),
        (4, True),
        (5, False),
        (6, False),
        (8, False),
        (11, False),
        (12, False),
        (13, False),
        (-(1 << 63), True),
    ],
)
def test_S12_valid_base(write_id: int, valid: bool) -> None:
    """The list of S14, and a list in which write id 5 is open."""
    assert WRITES.is_valid_base(write_id) is valid


def test_S12_aborted_writes_below_a_base_do_not_matter() -> None:
    merged = ValidWriteIdList.of("db.t", 8, aborted=[3, 8])
    assert merged.is_valid_base(8)
    assert not merged.is_valid_base(9)


def test_S13_text_form() -> None:
    assert ValidWriteIdList(12, (5, 9), (7, 10), 5, "db.t") == WRITES
    assert str(WRITES) == "db.t:12:5:5,9:7,10"


@pytest.mark.parametrize(
    "text", ["db.t", "db.t:12", "db.t:12:5:5", "12:5:5,9:7,10", "db.t:twelve:5::"]
)
def test_S13_malformed(text: str) -> None:
    with pytest.raises(MalformedList):
        ValidWriteIdList.parse(text)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 4, ALL),
        (1, 5, SOME),
        (5, 5, NONE),
        (6, 6, ALL),
        (7, 7, NONE),
        (11, 12, ALL),
        (12, 13, SOME),
        (13, 14, NONE),
        (1, 20, SOME),
    ],
)
def test_S14_ranges(low: int, high: int, expected: RangeResponse) -> None:
    assert WRITES.range_valid(low, high) is expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (7, 7, ALL),
        (7, 8, SOME),
        (9, 10, SOME),
        (11, 12, NONE),
    ],
)
def test_S14_aborted_ranges(low: int, high: int, expected: RangeResponse) -> None:
    assert WRITES.range_aborted(low, high) is expected


# --- the compactor's list -----------------------------------------------------------------------


def test_S16_values() -> None:
    compactor = ValidWriteIdList.parse("db.t:8:9223372036854775807::3,5,7").for_compactor()
    assert [compactor.range_valid(*r) for r in ((3, 3), (7, 8), (8, 9), (9, 10))] == [
        ALL,
        ALL,
        NONE,
        NONE,
    ]
    assert compactor.is_valid_base(8)
    assert not compactor.is_valid_base(9)
    assert not compactor.is_valid(3)
    assert compactor.is_aborted(3)


def test_S16_never_past_an_open_write() -> None:
    compactor = ValidWriteIdList.of("db.t", 8, open=[5], aborted=[3, 7]).for_compactor()
    assert str(compactor) == "db.t:4:9223372036854775807::3"
    assert compactor.range_valid(5, 5) is NONE


def test_S16_never_past_the_high_watermark() -> None:
    assert ValidWriteIdList.parse("db.t:5:8:8:").for_compactor().high_watermark == 5


def test_S17_capped_list_keeps_what_is_aborted_above() -> None:
    capped = WRITES.capped(8)
    assert (capped.high_watermark, capped.open, capped.aborted) == (8, (5,), (7, 10))
    assert WRITES.capped(99).high_watermark == 12


# --- properties ---------------------------------------------------------------------------------


@given(txn_lists(), write_id_lists())
def test_S5_S13_round_trip(some_txns: ValidTxnList, some_writes: ValidWriteIdList) -> None:
    assert ValidTxnList.parse(str(some_txns)) == some_txns
    assert ValidWriteIdList.parse(str(some_writes)) == some_writes


@given(write_id_lists(), ids, st.integers(0, MAX_ID))
def test_S14_ranges_count_single_ids(some: ValidWriteIdList, low: int, length: int) -> None:
    span = range(low, low + length + 1)
    answers = {True: ALL, False: NONE}
    valid = {some.is_valid(txn_id) for txn_id in span}
    aborted = {some.is_aborted(txn_id) for txn_id in span}
    assert some.range_valid(span[0], span[-1]) is (SOME if len(valid) > 1 else answers[valid.pop()])
    assert some.range_aborted(span[0], span[-1]) is (
        SOME if len(aborted) > 1 else answers[aborted.pop()]
    )
    assert some.aborted_between(span[0], span[-1]) == tuple(filter(some.is_aborted, span))
    assert some.open_between(span[0], span[-1]) == tuple(i for i in span if i in some.open)


@given(write_id_lists())
def test_S16_compactor_never_answers_some(some: ValidWriteIdList) -> None:
    compactor = some.for_compactor()
    for low in range(1, MAX_ID + 2):
        for high in range(low, MAX_ID + 2):
            below = high <= compactor.high_watermark
            assert compactor.range_valid(low, high) is (ALL if below else NONE)
            if below:
                assert not some.open_between(low, high)


@given(write_id_lists(), st.integers(1, MAX_ID + 4))
def test_S2_own_write_id_becomes_visible_and_nothing_else_changes(
    some: ValidWriteIdList, own: int
) -> None:
    seeing = some.seeing(own)
    for write_id in range(1, MAX_ID + 6):
        mine = write_id == own and not some.is_aborted(own)
        assert seeing.is_valid(write_id) == (mine or some.is_valid(write_id))
    for low in range(1, own + 1):
        single = {seeing.is_valid(write_id) for write_id in range(low, own + 1)}
        expected = SOME if len(single) > 1 else ALL if True in single else NONE
        assert seeing.range_valid(low, own) is expected


def test_S2_own_write_id_above_an_abort_that_the_list_knows_of() -> None:
    """Hidden write ids must not count twice, or a range with the own write id is invisible."""
    seeing = ValidWriteIdList.parse("db.t:3:9223372036854775807::5").seeing(7)
    assert seeing.range_valid(4, 7) is SOME
