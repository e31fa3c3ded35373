"""Kinds, states and layouts (P23) of compactions, and states of erasures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from acid_platform.base.table_properties import LAYOUT


class CompactionKind(Enum):
    """Kind of a compaction; Hive's rebalance is not supported."""

    MAJOR = "major"
    MINOR = "minor"


class CompactionState(Enum):
    """State of a row of the compaction queue or history; the letters are Hive's."""

    INITIATED = "i"
    WORKING = "w"
    READY_FOR_CLEANING = "r"
    SUCCEEDED = "s"
    FAILED = "f"
    DID_NOT_INITIATE = "a"
    REFUSED = "c"
    ABORTED = "x"

    @property
    def text(self) -> str:
        """As SHOW COMPACTIONS prints it (C61)."""
        return self.name.lower().replace("_", " ")


class ErasureState(Enum):
    REQUESTED = "requested"
    WAITING = "waiting"
    """An erasure ran, but files still hold rows to erase."""
    ERASED = "erased"
    WITHDRAWN = "withdrawn"

    @property
    def open(self) -> bool:
        """Whether rows are left to erase."""
        return self in (ErasureState.REQUESTED, ErasureState.WAITING)


class Layout(Enum):
    """How compacted directories are named (P23)."""

    HIVE4 = "hive4"
    """`_v<txn>` keeps an output invisible until its compaction commits."""
    HIVE3 = "hive3"
    """No suffix; `_metadata_acid` marks the output as compacted. The rename makes it visible."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Layout:
        """The table's layout; hive4 without the property. Raises SettingRefused."""
        return cls(LAYOUT.value(properties))
