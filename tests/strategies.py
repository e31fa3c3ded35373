"""Hypothesis strategies for ids, lists, names and listings.

Ids are small, so that ranges overlap, contain and miss each other often.
"""

from __future__ import annotations

from hypothesis import strategies as st

from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

MAX_ID = 12
TABLE = "db.t"

ids = st.integers(1, MAX_ID)
large_ids = st.integers(0, 2**62)
visibilities = st.one_of(st.just(0), st.integers(20, 24))


@st.composite
def write_id_lists(draw: st.DrawFn, max_id: int = MAX_ID) -> ValidWriteIdList:
    """Lists as the metastore makes them: exceptions at or below the high watermark."""
    high_watermark = draw(st.integers(0, max_id))
    states = draw(
        st.lists(st.sampled_from("cccoa"), min_size=high_watermark, max_size=high_watermark)
    )
    return ValidWriteIdList.of(
        TABLE,
        high_watermark,
        [txn_id for txn_id, state in enumerate(states, 1) if state == "o"],
        [txn_id for txn_id, state in enumerate(states, 1) if state == "a"],
    )


@st.composite
def txn_lists(draw: st.DrawFn) -> ValidTxnList:
    """Lists in which each `visibilities` id may be committed, open, aborted or unknown."""
    states = draw(st.lists(st.sampled_from("ccoa"), min_size=5, max_size=5))
    return ValidTxnList.of(
        draw(st.integers(19, 24)),
        [txn_id for txn_id, state in enumerate(states, 20) if state == "o"],
        [txn_id for txn_id, state in enumerate(states, 20) if state == "a"],
    )


def base_names(numbers: st.SearchStrategy[int] = ids) -> st.SearchStrategy[BaseName]:
    return st.builds(BaseName, numbers, visibilities)


@st.composite
def delta_names(draw: st.DrawFn, numbers: st.SearchStrategy[int] = ids) -> DeltaName:
    """Statements of one write id, and compacted or streaming ranges."""
    low, high = sorted((draw(numbers), draw(numbers)))
    deletes = draw(st.booleans())
    if draw(st.booleans()):
        return DeltaName(low, low, draw(st.integers(0, 2)), 0, deletes)
    return DeltaName(low, high, None, draw(visibilities), deletes)


def acid_names(
    numbers: st.SearchStrategy[int] = ids,
) -> st.SearchStrategy[BaseName | DeltaName]:
    return st.one_of(base_names(numbers), delta_names(numbers))


@st.composite
def entity_listings(draw: st.DrawFn, bases: bool = True, originals: bool = True) -> EntityListing:
    """Up to a dozen ACID directories with one bucket file each, perhaps some original files."""
    kinds = acid_names() if bases else delta_names()
    directories = [str(name) for name in draw(st.lists(kinds, max_size=12, unique=True))]
    files = [FileEntry(f"{name}/bucket_00000", 10) for name in directories]
    if originals and draw(st.booleans()):
        files += [FileEntry("000000_0", 10), FileEntry("000000_0_copy_1", 10)]
    compacted = draw(st.sets(st.sampled_from(directories))) if directories else set()
    formats = {name: "compacted" for name in sorted(compacted) if name.startswith("base_")}
    return EntityListing("db.t", tuple(files), tuple(directories), formats)
