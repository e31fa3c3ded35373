"""Kinds, states and layouts (P23) of compactions, how much they could merge; states of erasures.

What a compaction of an entity could merge now is known from what commits recorded (C13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.names import BaseName, parse_directory
from acid_platform.layout.table_properties import LAYOUT
from acid_platform.scan.selection import select
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList


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


@dataclass(frozen=True, slots=True)
class LiveDirectory:
    """A directory with committed data, as its writer or compaction reported it.

    `name` is empty for original files. `compacted` distinguishes a hive3 base written by a
    compactor from an overwrite.
    """

    name: str
    bytes: int
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class EntitySize:
    """The data of an entity that a compaction could merge now; sizes in bytes (C13)."""

    reference_bytes: int = 0
    """The size that deltas are compared with: the base, or else the original files."""
    delta_bytes: int = 0
    delta_directories: int = 0
    """The number of deltas and delete_deltas together."""
    has_obsolete_base: bool = False


def entity_size(
    directories: Iterable[LiveDirectory], write_ids: CompactorWriteIdList
) -> EntitySize:
    """The size of what the compactor would select, computed by `select` itself (C13).

    Only whole directories at or below the compactor's high watermark count, but none at or below
    the base and none that a wider delta contains. `directories` must be committed. Raises
    MalformedName and NotEnoughHistory as `select` does.
    """
    acid: dict[str, LiveDirectory] = {}
    original_bytes = 0
    for directory in directories:
        if parse_directory(directory.name) is None:
            original_bytes += directory.bytes
        else:
            acid[directory.name] = directory
    formats = {name: "compacted" for name, directory in acid.items() if directory.compacted}
    listing = EntityListing(write_ids.table, (), tuple(acid), formats)
    selected = select(listing, write_ids, ValidTxnList.everything())
    return EntitySize(
        reference_bytes=acid[selected.base.directory].bytes if selected.base else original_bytes,
        delta_bytes=sum(acid[delta.directory].bytes for delta in selected.deltas),
        delta_directories=len(selected.deltas),
        has_obsolete_base=any(
            isinstance(parse_directory(removable.path), BaseName) for removable in selected.obsolete
        ),
    )
