"""Rows of a dropped partition that are still where a new one of its name is (P22)."""

from __future__ import annotations

from acid_platform.errors import NotCleaned
from acid_platform.layout.names import DeltaName, parse_directory
from acid_platform.storage.files import Files


def require_cleaned(location: str, floor: int) -> None:
    """Other engines read every directory of a partition, also those of a dropped one.

    `floor` is the highest write id at the last drop. Raises NotCleaned.
    """
    files, path = Files.of(location)
    if not files.is_directory(path):
        return
    for child in files.children(path):
        name = parse_directory(child.base_name)
        if name is None:
            continue
        if (name.high if isinstance(name, DeltaName) else name.write_id) <= floor:
            raise NotCleaned(
                f"{location} still has {name} of a partition that was dropped, which would be"
                " read with the new one: run the Cleaner (acid run cleaner); acid run cleaner"
                " --explain says what it waits for"
            )
