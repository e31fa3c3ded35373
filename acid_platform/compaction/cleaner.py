"""What the Cleaner may remove of one entity, and what has to stay (C44 to C55).

The directory must have been selected with the Cleaner's lists (S17, C45) and `cleaning=True`. No
transaction is valid in them that an open snapshot does not see: after a compaction because the
metastore waited for everybody who opened before its commit (C41), for aborted transactions because
the lists stop below the lowest id that an open snapshot excludes. Then whatever shadows a directory
is seen by every present and future reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from acid_platform.layout.names import BaseName, DeltaName, parse_directory, temporary_owner
from acid_platform.snapshot import AcidDirectory
from acid_platform.transactions import TxnState, ValidWriteIdList

NO_CLEANUP = "NO_CLEANUP"


class CleaningKind(Enum):
    """What a cleaning follows on."""

    AFTER_COMPACTION = "after compaction"
    """C44 to C49."""
    ABORTED = "aborted transactions"
    """C50 to C53."""
    DYNAMIC_ABORT = "aborted dynamic partitions"
    """C55: each partition is searched, and only aborted directories go."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A path, relative to the entity directory, to remove, and why."""

    path: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A path that looks removable but stays, and why."""

    path: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """Paths to remove, paths that stay, and which aborted write ids may be forgotten."""

    location: str
    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]
    undeletable_aborted_write_ids: tuple[int, ...]
    """Aborted, and a directory that stays may hold rows of them: never forget these (C53, P4)."""
    removed_aborted_write_ids: tuple[int, ...]
    """Aborted, at or below the highest write id, and no file of them is left here (C49).

    An abort that spans partitions may be forgotten when this holds in each of them.
    """

    @property
    def done(self) -> bool:
        """Nothing obsolete is left: the row is marked cleaned. Else it stays ready (C47).

        What only a later compaction made obsolete is left to that one's cleaning (C45), which
        comes after this row has gone (C39).
        """
        return not self.removals and all(one.rule != "C46" for one in self.kept)

    def __str__(self) -> str:
        lines = [f"cleaning of {self.location}"]
        lines += [f"  remove {one.path} ({one.rule}: {one.reason})" for one in self.removals]
        lines += [f"  keep   {one.path} ({one.rule}: {one.reason})" for one in self.kept]
        if self.undeletable_aborted_write_ids:
            ids = ", ".join(map(str, self.undeletable_aborted_write_ids))
            lines.append(f"  aborted write ids still in files: {ids}")
        return "\n".join(lines)


def no_cleanup(properties: Mapping[str, str]) -> bool:
    """Whether the table or partition asks to keep its files (C44); key and value in any case."""
    return any(
        key.upper() == NO_CLEANUP and value.lower() == "true" for key, value in properties.items()
    )


def plan_cleaning(
    directory: AcidDirectory,
    kind: CleaningKind,
    write_ids: ValidWriteIdList,
    highest_write_id: int,
    temporary: Mapping[str, TxnState | None] | None = None,
) -> CleaningPlan:
    """What may go: obsolete and aborted directories, and work left by ended transactions (C46).

    `write_ids` is the list that `directory` was selected with. `temporary` maps `_tmp_` directories
    to the state of their owner, None if the metastore does not know it; list first and ask then, so
    that an owner which began in between counts as open. A directory that holds an open write id,
    or one above the highest write id, stays whatever shadows it.
    """
    removals: list[Removal] = []
    kept: list[Kept] = []
    for one in directory.obsolete:
        why = _must_stay(one.path, kind, write_ids, highest_write_id)
        if why is None:
            removals.append(Removal(one.path, one.rule, one.reason))
        else:
            kept.append(Kept(one.path, why[0], why[1]))
    removals += [Removal(one.path, one.rule, one.reason) for one in directory.aborted]
    for path, state in sorted((temporary or {}).items()):
        _judge_temporary(path, state, removals, kept)
    undeletable = _undeletable(directory, kept, write_ids)
    kept += [
        Kept(path, "C53", f"holds aborted write ids {', '.join(map(str, ids))} among others")
        for path, ids in undeletable.items()
    ]
    stuck = {one for ids in undeletable.values() for one in ids}
    return CleaningPlan(
        directory.location,
        tuple(removals),
        tuple(kept),
        tuple(sorted(stuck)),
        _forgettable(removals, write_ids, highest_write_id, stuck),
    )


def _must_stay(
    path: str, kind: CleaningKind, write_ids: ValidWriteIdList, highest: int
) -> tuple[str, str] | None:
    """The rule and reason that keep an obsolete path, if any."""
    if kind is CleaningKind.DYNAMIC_ABORT:
        return "C55", "obsolete, but only aborted directories go after a dynamic partition abort"
    name = parse_directory(path)
    if isinstance(name, BaseName) and name.write_id > highest:
        return "C45", f"above the highest write id {highest}: a later cleaning's"
    if isinstance(name, DeltaName):
        opened = write_ids.open_between(name.low, name.high)
        if opened:
            return "C46", f"write id {opened[0]} is open"
        if name.high > highest:
            return "C45", f"reaches above the highest write id {highest}: a later cleaning's"
    return None


def _judge_temporary(
    path: str, state: TxnState | None, removals: list[Removal], kept: list[Kept]
) -> None:
    """P19: what an unfinished publication left goes when its owner has ended."""
    owner = temporary_owner(path.rpartition("/")[2])
    if owner is None:
        kept.append(Kept(path, "P19", "the name does not tell which transaction owns it"))
    elif state is TxnState.OPEN:
        kept.append(Kept(path, "P19", f"transaction {owner} is open"))
    elif state is None:
        removals.append(Removal(path, "P19", f"transaction {owner} is unknown, so it has ended"))
    else:
        removals.append(Removal(path, "P19", f"transaction {owner} is {state.name.lower()}"))


def _undeletable(
    directory: AcidDirectory, kept: Iterable[Kept], write_ids: ValidWriteIdList
) -> dict[str, tuple[int, ...]]:
    """Aborted write ids by the directory that stays and may hold rows of them (C53).

    A compactor leaves the rows of aborted write ids out; a streaming batch, or a hive3 delta that
    nothing marks as compacted, may still hold them.
    """
    staying: dict[str, DeltaName] = {
        one.directory: one.name for one in directory.deltas if not one.compacted
    }
    names = [(one.path, one.name) for one in directory.invisible]
    names += [(one.path, name) for one in kept if (name := parse_directory(one.path)) is not None]
    for path, name in names:
        if isinstance(name, DeltaName) and not name.visibility:
            staying[path] = name
    held = {path: write_ids.aborted_between(name.low, name.high) for path, name in staying.items()}
    return {path: ids for path, ids in sorted(held.items()) if ids}


def _forgettable(
    removals: Iterable[Removal], write_ids: ValidWriteIdList, highest: int, stuck: set[int]
) -> tuple[int, ...]:
    """C49: all aborted ids up to the highest; while some are stuck only those really removed."""
    below = write_ids.aborted_between(0, highest)
    if not stuck:
        return below
    removed: set[int] = set()
    for one in removals:
        name = parse_directory(one.path)
        if isinstance(name, BaseName):
            removed.add(name.write_id)
        elif isinstance(name, DeltaName) and not name.visibility:
            removed.update(write_ids.aborted_between(name.low, name.high))
    return tuple(one for one in below if one in removed and one not in stuck)
