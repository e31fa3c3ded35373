"""Which directory of an entity takes the place of which other one (F12).

Readers, compactions, the Cleaner, fsck and the metastore's list of directories all ask here.
"""

from __future__ import annotations

from acid_platform.layout.names import AcidName, BaseName, DeltaName


def shadows(one: AcidName | None, other: AcidName | None) -> bool:
    """Whether whoever sees both directories reads only `one`; None: the original files.

    A compaction replaces both deltas and delete_deltas, even if it wrote only one of the two: rows
    that were deleted by the same write id leave no delta. The statements of one write are equals,
    and so are the delta and delete_delta of one compaction. Of two bases with the same write id the
    later compaction counts.
    """
    if isinstance(one, BaseName):
        if isinstance(other, BaseName):
            return base_order(other) < base_order(one)
        return other is None or other.high <= one.write_id
    if not isinstance(one, DeltaName) or not isinstance(other, DeltaName):
        return False
    if not one.low <= other.low <= other.high <= one.high:
        return False
    if other.high == one.high and one.statement is not None:
        return False
    return one.low != other.low or other.high != one.high or _earlier(other, one)


def base_order(base: BaseName) -> tuple[int, int]:
    """The highest of an entity's bases is read."""
    return base.write_id, base.visibility


def _earlier(other: DeltaName, merged: DeltaName) -> bool:
    """Whether a delta of the same write ids was there before the compaction `merged`."""
    return other.statement is not None or other.visibility < merged.visibility
