"""What one compaction reads and makes (C29, C31, F21).

The plan is either explained (`str(plan)`) or executed, so that both can't drift apart. The
directory must have been selected with the compactor's list and with transactions that take the
compaction's own one for open: otherwise its half-made output would hide its inputs.

The executor's part of the rules:
- A row goes into the output when its currentTransaction is not in `aborted` and is greater than
  the `above` of its input. Delete events likewise, by their own currentTransaction. Identities
  stay; order is (originalTransaction, bucket, rowId).
- A base is always created, also without a row. A delta or delete_delta is created only if it has
  rows; when a minor compaction leaves none of either kind, the inputs stay.
- Each bucket is a k-way merge that streams a stripe per file; more inputs than
  `hive.compactor.max.num.delta` are first merged in groups of so many (C34).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.errors import CompactionFailed
from acid_platform.layout.names import (
    CONVERTED_BASE,
    BaseName,
    DeltaName,
    original_bucket,
    parse_bucket_file,
    parse_directory,
)
from acid_platform.snapshot import AcidDirectory, FileEntry, VisibleBase, VisibleDelta
from acid_platform.transactions import CompactorWriteIdList


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """No output is needed; `to_cleaning` says that directories wait for the Cleaner (C29)."""

    to_cleaning: bool
    reason: str
    rule: str

    def __str__(self) -> str:
        follows = "to the Cleaner" if self.to_cleaning else "refused"
        return f"nothing to compact, {follows} ({self.rule}): {self.reason}"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One data file and the directory that it was selected in; None for an original file."""

    file: FileEntry
    source: VisibleBase | VisibleDelta | None

    @property
    def bucket(self) -> int:
        """Bucket number from the file name. `select` admits no file without one."""
        parsed = parse_bucket_file(self.file.name)
        number = parsed.bucket if parsed else original_bucket(self.file.name)
        if number is None:
            raise CompactionFailed(
                f"{self.file.path} has no bucket number in its name; rename it, then compact again"
            )
        return number


@dataclass(frozen=True, slots=True)
class BucketInputs:
    """What the task of one bucket number reads; each in the order of the selection."""

    bucket: int
    data: tuple[InputFile, ...]
    """Base or originals, then deltas. A minor compaction has deltas only."""
    deletes: tuple[InputFile, ...]
    """delete_delta files of the same number: all that matter for a bucketed table."""
    every_delete: tuple[InputFile, ...]
    """Delete files of every number: in an unbucketed table each may hold any bucket."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Inputs and output names of one compaction; nothing is on disk yet."""

    location: str
    kind: CompactionKind
    layout: Layout
    txn_id: int
    base: VisibleBase | None
    originals: tuple[FileEntry, ...]
    inserts: tuple[VisibleDelta, ...]
    deletes: tuple[VisibleDelta, ...]
    low: int
    """Lowest write id of the inputs; 0 for a major compaction, which covers all."""
    high: int
    output_base: BaseName | None
    output_delta: DeltaName | None
    output_delete_delta: DeltaName | None
    aborted: tuple[int, ...]
    """Aborted write ids in low..high: their rows and delete events are left out."""
    reason: str
    rule: str

    @property
    def outputs(self) -> tuple[BaseName | DeltaName, ...]:
        names = (self.output_base, self.output_delete_delta, self.output_delta)
        return tuple(name for name in names if name is not None)

    @property
    def input_bytes(self) -> int:
        return sum(one.file.size for one in (*self._data(), *_files(self.deletes)))

    @property
    def widest_merge(self) -> int:
        """At most so many files does one task hold open; a major one may read every delete."""
        major = self.kind is CompactionKind.MAJOR
        return max(
            (
                len(one.data) + len(one.every_delete if major else one.deletes)
                for one in self.inputs_by_bucket().values()
            ),
            default=0,
        )

    def inputs_by_bucket(self) -> dict[int, BucketInputs]:
        """The inputs of each task, by bucket number from the file names, ascending.

        A major compaction has no task for a number that only delete files have: no row could
        come of it.
        """
        data, deletes = _by_bucket(self._data()), _by_bucket(_files(self.deletes))
        every = tuple(_files(self.deletes))
        numbers = set(data) if self.kind is CompactionKind.MAJOR else {*data, *deletes}
        return {
            number: BucketInputs(number, tuple(data[number]), tuple(deletes[number]), every)
            for number in sorted(numbers)
        }

    def _data(self) -> list[InputFile]:
        bases = () if self.base is None else (self.base,)
        return [InputFile(one, None) for one in self.originals] + _files((*bases, *self.inserts))

    def __str__(self) -> str:
        lines = [
            f"{self.kind.value} compaction of {self.location} by transaction {self.txn_id}"
            f" ({self.rule}: {self.reason})",
            *(
                f"  read   {one.file.path}  {one.file.size} bytes"
                for one in (*self._data(), *_files(self.deletes))
            ),
            *(f"  write  {name}" for name in self.outputs),
            f"  {self.input_bytes} bytes in, at most {self.widest_merge} files per bucket",
        ]
        if self.aborted:
            lines.append(f"  leave out aborted write ids {', '.join(map(str, self.aborted))}")
        return "\n".join(lines)


def plan_compaction(
    directory: AcidDirectory,
    kind: CompactionKind,
    write_ids: CompactorWriteIdList,
    txn_id: int,
    layout: Layout = Layout.HIVE4,
    *,
    insert_only: bool = False,
) -> CompactionPlan | NothingToDo:
    """What transaction `txn_id` would merge (C29, C31, P23), or why there is nothing to merge.

    Raises CompactionFailed when the selection sees an output of `txn_id` itself.
    """
    _refuse_own_output(directory, txn_id)
    inserts, deletes = directory.inserts, directory.delete_deltas
    described = _describe(directory)
    if not _enough(directory, kind):
        left = len(directory.obsolete) + len(directory.aborted)
        return NothingToDo(
            left > 0,
            f"{described}: not enough for a {kind.value} compaction"
            + (f"; {left} obsolete or aborted paths to clean" if left else ""),
            "C29",
        )
    low, high = 0, write_ids.high_watermark
    suffix = txn_id if layout is Layout.HIVE4 else 0
    output_base: BaseName | None = None
    output_delta: DeltaName | None = None
    output_deletes: DeltaName | None = None
    if kind is CompactionKind.MAJOR:
        # Write ids start at 1: the base of a converted table never written since has Hive's name.
        output_base = BaseName(high or CONVERTED_BASE, suffix)
    else:
        refusal = minor_refused(directory, layout, insert_only=insert_only)
        if refusal is not None:
            return refusal
        low = min(delta.name.low for delta in directory.deltas)
        high = max(delta.name.high for delta in directory.deltas)
        output_delta = DeltaName(low, high, visibility=suffix) if inserts else None
        output_deletes = DeltaName(low, high, visibility=suffix, deletes=True) if deletes else None
    major = kind is CompactionKind.MAJOR
    plan = CompactionPlan(
        directory.location,
        kind,
        layout,
        txn_id,
        directory.base if major else None,
        directory.originals if major else (),
        inserts,
        deletes,
        low,
        high,
        output_base,
        output_delta,
        output_deletes,
        write_ids.aborted_between(low, high),
        described,
        "C29",
    )
    taken = _name_taken(directory, plan) if layout is Layout.HIVE3 else None
    return taken or plan


def watermark(directory: AcidDirectory, write_ids: CompactorWriteIdList) -> int:
    """The highest write id that a compaction may cover; select with it again if it is lower.

    A streaming batch whose later transactions are open reaches above the watermark and can't be
    merged yet. Whoever reads a directory that ends within the batch, and sees none of its later
    write ids, leaves the batch out whole: so an output ends before it begins.
    """
    high = write_ids.high_watermark
    begins = [
        one.name.low
        for one in directory.invisible
        if isinstance(one.name, DeltaName)
        and not one.name.visibility
        and one.name.low <= high < one.name.high
    ]
    covered = 0 if directory.base is None else directory.base.name.write_id
    return max(0, covered, min(begins) - 1) if begins else high


def minor_refused(
    directory: AcidDirectory, layout: Layout, *, insert_only: bool = False
) -> NothingToDo | None:
    """Why no minor compaction can run here, if so; a major one can (C19, C27).

    The Initiator asks too, and chooses MAJOR then.
    """
    raw = [delta.directory for delta in directory.deltas if delta.raw]
    if raw and not insert_only:
        return NothingToDo(
            False, f"{raw[0]} holds files without ACID columns; request a major compaction", "C27"
        )
    if layout is Layout.HIVE3 and directory.inserts and directory.delete_deltas:
        # Between two renames a reader would miss the rows, or the deletes, of the other kind.
        return NothingToDo(
            False,
            "layout hive3 publishes by one rename, but there are deltas and delete_deltas;"
            " request a major compaction",
            "P23",
        )
    return None


def _enough(directory: AcidDirectory, kind: CompactionKind) -> bool:
    """C29. A pair of one delta and one delete_delta is what a minor compaction would make."""
    count = len(directory.deltas)
    if kind is CompactionKind.MAJOR:
        return bool(directory.originals) or count + (directory.base is not None) > 1
    pair = len(directory.inserts) == len(directory.delete_deltas) == 1
    return count > 1 and not pair


def _name_taken(directory: AcidDirectory, plan: CompactionPlan) -> NothingToDo | None:
    """P23: without `_v` an output may have the name of an aborted overwrite, say."""
    removable = [one.path for one in (*directory.obsolete, *directory.aborted)]
    for path in (*removable, *(one.path for one in directory.invisible)):
        if parse_directory(path) in plan.outputs:
            return NothingToDo(
                path in removable,
                f"layout hive3 would write {path}, which exists; clean it first",
                "P23",
            )
    return None


def _describe(directory: AcidDirectory) -> str:
    base = directory.base.directory if directory.base else "no base"
    return (
        f"{base}, {len(directory.originals)} original files, {len(directory.inserts)} deltas,"
        f" {len(directory.delete_deltas)} delete_deltas"
    )


def _refuse_own_output(directory: AcidDirectory, txn_id: int) -> None:
    for one in directory.sources:
        if one.name.visibility == txn_id:
            raise CompactionFailed(
                f"{directory.location}/{one.directory} is an output of compaction transaction"
                f" {txn_id} itself, and hides its inputs; select with that transaction open"
            )


def _files(sources: Iterable[VisibleBase | VisibleDelta]) -> list[InputFile]:
    return [InputFile(one, source) for source in sources for one in source.files]


def _by_bucket(files: Iterable[InputFile]) -> defaultdict[int, list[InputFile]]:
    grouped: defaultdict[int, list[InputFile]] = defaultdict(list)
    for one in files:
        grouped[one.bucket].append(one)
    return grouped
