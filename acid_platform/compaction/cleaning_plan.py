"""What the Cleaner may remove from one entity, and what has to stay (C44 to C55).

The directory must be selected with the Cleaner's lists (C45) and `cleaning=True`. Every
transaction that is valid in these lists is visible to all open snapshots: after a compaction the
metastore waits for everybody who opened before its commit, and for aborted transactions the
lists stop below the lowest id that an open snapshot excludes. So whatever shadows a directory is
visible to every present and future reader.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from acid_platform.layout.names import BaseName, DeltaName, parse_directory, temporary_owner
from acid_platform.layout.table_properties import NO_CLEANUP
from acid_platform.scan.acid_directory import AcidDirectory, Removable
from acid_platform.transactions import TxnState, ValidWriteIdList

PINNED = "P36"
"""The rule by which a pinned path stays."""


@dataclass(frozen=True, slots=True)
class KeptPath:
    """A path that looks removable but stays, and why."""

    path: str
    reason: str
    rule: str


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """Paths to remove, paths that stay, and which aborted write ids may be forgotten."""

    location: str
    removals: tuple[Removable, ...]
    staying: tuple[KeptPath, ...]
    undeletable_aborted_write_ids: tuple[int, ...]
    """Aborted write ids whose rows a directory that stays may hold: never forget them (C53)."""
    removed_aborted_write_ids: tuple[int, ...]
    """Aborted write ids up to the highest one of which no file is left here (C49).

    An abort that spans partitions may be forgotten once this holds in each of them.
    """

    @property
    def pinned(self) -> bool:
        """Whether something stays only because a past snapshot reads it."""
        return any(path.rule == PINNED for path in self.staying)

    @property
    def complete(self) -> bool:
        """Whether nothing obsolete is left: the queue row becomes cleaned, else stays ready (C47).

        Directories that only a later compaction made obsolete are left to that compaction's
        cleaning (C45), which comes after this row is gone.
        """
        return not self.removals and all(path.rule != "C46" for path in self.staying)


def no_cleanup(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a table or partition forbid cleaning (C44)."""
    return NO_CLEANUP.text(properties) == "true"


def plan_cleaning(
    directory: AcidDirectory,
    write_ids: ValidWriteIdList,
    highest_write_id: int,
    temporary: Mapping[str, TxnState | None] | None = None,
    pinned: Container[str] = frozenset(),
    only_aborted: bool = False,
) -> CleaningPlan:
    """What to remove: obsolete and aborted directories, and leftovers of ended transactions (C46).

    `write_ids` is the list that `directory` was selected with. `temporary` maps `_tmp_` directories
    to the state of the owning transaction, None if the metastore does not know it; list the
    directories before asking for states, so that an owner that begins in between counts as open. A
    directory with an open write id, or one above `highest_write_id`, always stays, and so does a
    path in `pinned`, which a past snapshot reads. `only_aborted`: obsolete directories stay, as
    after an abort in unknown partitions (C55).
    """
    removals: list[Removable] = []
    staying: list[KeptPath] = []
    for obsolete in directory.obsolete:
        why = _must_stay(obsolete.path, write_ids, highest_write_id)
        if only_aborted:
            why = "obsolete, but only aborted directories go after a dynamic partition abort", "C55"
        elif why is None and obsolete.path in pinned:
            why = "a tag, or a transaction that reads the past, needs it", PINNED
        if why is None:
            removals.append(obsolete)
        else:
            staying.append(KeptPath(obsolete.path, *why))
    removals += directory.aborted
    for path, state in sorted((temporary or {}).items()):
        _judge_temporary(path, state, removals, staying)
    undeletable = _undeletable(directory, staying, write_ids)
    staying += [
        KeptPath(path, f"holds aborted write ids {', '.join(map(str, ids))} among others", "C53")
        for path, ids in undeletable.items()
    ]
    stuck = {write_id for ids in undeletable.values() for write_id in ids}
    return CleaningPlan(
        directory.location,
        tuple(removals),
        tuple(staying),
        tuple(sorted(stuck)),
        _forgettable(removals, write_ids, highest_write_id, stuck),
    )


def _must_stay(path: str, write_ids: ValidWriteIdList, highest: int) -> tuple[str, str] | None:
    """The reason and the rule for keeping an obsolete path; None if it may go."""
    name = parse_directory(path)
    if isinstance(name, BaseName) and name.write_id > highest:
        return f"above the highest write id {highest}: left to a later cleaning", "C45"
    if isinstance(name, DeltaName):
        opened = write_ids.open_between(name.low, name.high)
        if opened:
            return f"write id {opened[0]} is open", "C46"
        if name.high > highest:
            return f"reaches above the highest write id {highest}: left to a later cleaning", "C45"
    return None


def _judge_temporary(
    path: str, state: TxnState | None, removals: list[Removable], staying: list[KeptPath]
) -> None:
    """P19: leftovers of an unfinished publication go once the owning transaction has ended."""
    owner = temporary_owner(path.rpartition("/")[2])
    if owner is None:
        staying.append(KeptPath(path, "the name does not tell which transaction owns it", "P19"))
    elif state is TxnState.OPEN:
        staying.append(KeptPath(path, f"transaction {owner} is open", "P19"))
    else:
        ended = "unknown, so it has ended" if state is None else state.name.lower()
        removals.append(Removable(path, f"transaction {owner} is {ended}", "P19"))


def _undeletable(
    directory: AcidDirectory, staying: Iterable[KeptPath], write_ids: ValidWriteIdList
) -> dict[str, tuple[int, ...]]:
    """The aborted write ids whose rows each directory that stays may hold, by path (C53).

    A compactor drops rows of aborted write ids; a streaming batch, or a hive3 delta that is not
    marked as compacted, may still hold them.
    """
    deltas: dict[str, DeltaName] = {
        delta.directory: delta.name for delta in directory.deltas if not delta.compacted
    }
    names = [(hidden.path, hidden.name) for hidden in directory.invisible]
    names += [
        (entry.path, name) for entry in staying if (name := parse_directory(entry.path)) is not None
    ]
    for path, name in names:
        if isinstance(name, DeltaName) and not name.visibility:
            deltas[path] = name
    held = {path: write_ids.aborted_between(name.low, name.high) for path, name in deltas.items()}
    return {path: ids for path, ids in sorted(held.items()) if ids}


def _forgettable(
    removals: Iterable[Removable], write_ids: ValidWriteIdList, highest: int, stuck: set[int]
) -> tuple[int, ...]:
    """C49: all aborted ids up to the highest; if some are stuck, only those whose files went."""
    below = write_ids.aborted_between(0, highest)
    if not stuck:
        return below
    removed: set[int] = set()
    for removal in removals:
        name = parse_directory(removal.path)
        if isinstance(name, BaseName):
            removed.add(name.write_id)
        elif isinstance(name, DeltaName) and not name.visibility:
            removed.update(write_ids.aborted_between(name.low, name.high))
    return tuple(write_id for write_id in below if write_id in removed and write_id not in stuck)
