"""What the storage layer found in one entity directory: the input of every selection.

An entity is an unpartitioned table or one partition. Plain values: nothing here lists files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file; `path` is relative to the entity directory and "/"-separated, `size` in bytes."""

    path: str
    size: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class EntityListing:
    """The files below one entity directory, in any order, and its direct sub-directories.

    `directories` names empty directories too, where the file system keeps them: an empty base
    means that everything before it is gone (storage.md section 1.3). `data_formats` maps a direct
    child to the `dataFormat` of its `_metadata_acid`; `versioned` names those with a version file.
    """

    location: str
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...] = ()
    data_formats: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    versioned: frozenset[str] = frozenset()
