"""Which directories and files of an entity a snapshot sees, and which are obsolete (F12)."""

from acid_platform.snapshot.directory import (
    AcidDirectory,
    Invisible,
    Removable,
    VisibleBase,
    VisibleDelta,
    highest_floor,
    select,
)
from acid_platform.snapshot.listing import EntityListing, FileEntry
from acid_platform.snapshot.sources import EntitySources, Source, SourceKind

__all__ = [
    "AcidDirectory",
    "EntityListing",
    "EntitySources",
    "FileEntry",
    "Invisible",
    "Removable",
    "Source",
    "SourceKind",
    "VisibleBase",
    "VisibleDelta",
    "highest_floor",
    "select",
]
