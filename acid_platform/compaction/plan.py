"""What a compaction reads and writes (C29, C31).

The same plan is explained (`acid compact --explain`) and executed, so the two can't drift apart.
The directory must be selected with the compactor's list and with a transaction list in which the
compaction's own transaction is open: otherwise its unfinished output would hide its inputs.

The executor must follow these rules:
- A row goes into the output if its currentTransaction is valid in `write_ids` and greater than the
  `above` of its input. The same holds for delete events, by their own currentTransaction. Row keys
  stay as they are; the order is (originalTransaction, bucket, rowId).
- A base is always created, even without rows. A delta or delete_delta is created only if it has
  rows; if a minor compaction leaves no rows of either kind, the inputs stay.
- Each bucket is one k-way merge. More inputs than `hive.compactor.max.num.delta` are merged in
  stages, which `compaction.rewrite` does.

`CompactionSettings` is what the warehouse, a table and a request say about one compaction. No other
module reads a property or a setting for the plan, the merge or an engine of a compaction: a new one
becomes a field there, and whoever has the plan has it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from acid_platform.base.config import Settings, setting
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.errors import CompactionFailed
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.formats import compression
from acid_platform.layout.names import (
    CONVERTED_BASE,
    BaseName,
    DeltaName,
    original_bucket,
    parse_bucket_file,
    parse_directory,
)
from acid_platform.layout.sort_columns import sort_columns
from acid_platform.layout.table_properties import (
    JOB_PREFIX,
    LOCAL_COMPACTION_BYTES,
    MOST_DELTAS,
    PUBLICATION_WAIT,
    QUEUES,
)
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.transactions import CompactorWriteIdList


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """How one compaction is done."""

    layout: Layout = Layout.HIVE4
    compression: str = "zlib"
    """The codec of ORC files, as Spark and Arrow spell it."""
    most_inputs: int = 500
    """The most files that one task merges at a time (C34)."""
    local_bytes: int = 0
    """The most bytes of inputs that are merged in this process, unless the engine is given."""
    publication_wait: float = 0.0
    """For how many seconds other engines may hold up the publication (P46)."""
    pool: str = ""
    """The scheduler pool of Spark's jobs; empty: the default."""
    sorted_by: tuple[str, ...] = ()
    """The columns by which a major compaction sorts the rows of a file."""

    @classmethod
    def of(
        cls, settings: Settings, request: Mapping[str, str], table: Mapping[str, str]
    ) -> CompactionSettings:
        """`compactor.<name>` of the request wins, then that of the table, then the warehouse's
        value (C22). Raises SettingRefused."""

        def text(*names: str) -> str:
            """The value of the first name that a property overrides, else of the first name."""
            overrides = (
                properties[JOB_PREFIX + name]
                for properties in (request, table)
                for name in names
                if JOB_PREFIX + name in properties
            )
            return next(overrides, settings.text(names[0]))

        def number(name: str) -> float:
            return float(setting(name).parse(text(name)))

        return cls(
            Layout.of(table),
            compression(table),
            int(number(MOST_DELTAS)),
            int(number(LOCAL_COMPACTION_BYTES)),
            number(PUBLICATION_WAIT) / 1000,
            text(*QUEUES),
            sort_columns(table),
        )


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """There is nothing to merge; `to_cleaning`: directories wait for the Cleaner (C29)."""

    to_cleaning: bool
    reason: str
    rule: str

    def __str__(self) -> str:
        follows = "to the Cleaner" if self.to_cleaning else "refused"
        return f"nothing to compact, {follows}: {self.reason}"


@dataclass(frozen=True, slots=True)
class BucketInputs:
    """The files that the task of one bucket number reads, in the order of the selection."""

    data: tuple[FileEntry, ...]
    """Files of the base or original files, then of the deltas; a minor compaction: only deltas."""
    deletes: tuple[FileEntry, ...]
    """delete_delta files of this bucket number; a bucketed table needs no others."""
    every_delete: tuple[FileEntry, ...]
    """delete_delta files of all bucket numbers: in an unbucketed table each may hold any bucket."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The inputs and output names of a compaction; nothing is on disk yet."""

    kind: CompactionKind
    txn_id: int
    settings: CompactionSettings
    inputs: AcidDirectory
    """What is merged: the selection, for a minor compaction without base and original files."""
    write_ids: CompactorWriteIdList
    """The list that the inputs were selected with."""
    output_base: BaseName | None
    output_delta: DeltaName | None
    output_delete_delta: DeltaName | None
    reason: str

    @property
    def location(self) -> str:
        return self.inputs.location

    @property
    def outputs(self) -> tuple[BaseName | DeltaName, ...]:
        names = (self.output_base, self.output_delete_delta, self.output_delta)
        return tuple(name for name in names if name is not None)

    def comes_into_sight(self, renames: bool) -> bool:
        """Whether engines that ignore `_v<txn>` could read the output before it is complete, or
        under a snapshot that lacks some of its writes (P46).

        `renames`: the file system renames directories. Then the base of a major compaction appears
        at once, and counts only for snapshots that see all of its writes.
        """
        whole_base = self.kind is CompactionKind.MAJOR and self.settings.layout is Layout.HIVE4
        return not (whole_base and renames)

    @property
    def input_bytes(self) -> int:
        return sum(file.size for file in (*self._data(), *self._deletes()))

    def inputs_by_bucket(self) -> dict[int, BucketInputs]:
        """The inputs of each task by bucket number, ascending.

        A major compaction has no task for a bucket that has only delete files: it would have no
        rows. Raises CompactionFailed for a file without a bucket number.
        """
        every = self._deletes()
        data, deletes = _by_bucket(self._data()), _by_bucket(every)
        numbers = set(data) if self.kind is CompactionKind.MAJOR else {*data, *deletes}
        return {
            number: BucketInputs(tuple(data[number]), tuple(deletes[number]), every)
            for number in sorted(numbers)
        }

    def _data(self) -> tuple[FileEntry, ...]:
        base = () if self.inputs.base is None else self.inputs.base.files
        deltas = (file for delta in self.inputs.inserts for file in delta.files)
        return (*self.inputs.originals, *base, *deltas)

    def _deletes(self) -> tuple[FileEntry, ...]:
        return tuple(file for delta in self.inputs.delete_deltas for file in delta.files)


def plan_compaction(
    directory: AcidDirectory,
    kind: CompactionKind,
    write_ids: CompactorWriteIdList,
    txn_id: int,
    settings: CompactionSettings,
) -> CompactionPlan | NothingToDo:
    """What transaction `txn_id` would merge (C29, C31, P23), or why there is nothing to merge.

    Raises CompactionFailed if the selection contains an output of `txn_id` itself.
    """
    _refuse_own_output(directory, txn_id)
    described = _describe(directory)
    if not _enough(directory, kind):
        left = len(directory.obsolete) + len(directory.aborted)
        return NothingToDo(
            left > 0,
            f"{described}: not enough for a {kind.value} compaction"
            + (f"; {left} obsolete or aborted paths to clean" if left else ""),
            "C29",
        )
    inputs = directory
    suffix = txn_id if settings.layout is Layout.HIVE4 else 0
    output_base: BaseName | None = None
    output_delta: DeltaName | None = None
    output_deletes: DeltaName | None = None
    if kind is CompactionKind.MAJOR:
        # Write ids start at 1; a converted table without writes gets the base name that Hive uses.
        output_base = BaseName(write_ids.high_watermark or CONVERTED_BASE, suffix)
    elif refusal := _minor_refused(directory, settings.layout):
        return refusal
    else:
        inputs = replace(directory, base=None, originals=())
        low = min(delta.name.low for delta in directory.deltas)
        high = max(delta.name.high for delta in directory.deltas)
        if directory.inserts:
            output_delta = DeltaName(low, high, visibility=suffix)
        if directory.delete_deltas:
            output_deletes = DeltaName(low, high, visibility=suffix, deletes=True)
    plan = CompactionPlan(
        kind,
        txn_id,
        settings,
        inputs,
        write_ids,
        output_base,
        output_delta,
        output_deletes,
        described,
    )
    taken = _name_taken(directory, plan) if settings.layout is Layout.HIVE3 else None
    return taken or plan


def watermark(directory: AcidDirectory, write_ids: CompactorWriteIdList) -> int:
    """The highest write id that a compaction may cover; if it is lower, select again with it.

    A streaming batch with open transactions reaches above the high watermark and can't be merged
    yet. A reader of a directory that ends inside the batch would skip the whole batch if it sees no
    later write id of it, so the output must end before the batch begins.
    """
    high = write_ids.high_watermark
    begins = [
        hidden.name.low
        for hidden in directory.invisible
        if isinstance(hidden.name, DeltaName)
        and not hidden.name.visibility
        and hidden.name.low <= high < hidden.name.high
    ]
    covered = 0 if directory.base is None else directory.base.name.write_id
    return max(0, covered, min(begins) - 1) if begins else high


def _minor_refused(directory: AcidDirectory, layout: Layout) -> NothingToDo | None:
    """Why only a major compaction can run here; None if a minor one can, too (C27)."""
    raw = [delta.directory for delta in directory.deltas if delta.raw]
    if raw and not directory.insert_only:
        return NothingToDo(
            False, f"{raw[0]} holds files without ACID columns; request a major compaction", "C27"
        )
    if layout is Layout.HIVE3 and directory.inserts and directory.delete_deltas:
        # Between two renames a reader would miss either the rows or the deletes.
        return NothingToDo(
            False,
            "layout hive3 publishes by one rename, but there are deltas and delete_deltas;"
            " request a major compaction",
            "P23",
        )
    return None


def _enough(directory: AcidDirectory, kind: CompactionKind) -> bool:
    """Whether there is something to merge (C29).

    A minor compaction of one delta and one delete_delta would write the same pair again.
    """
    count = len(directory.deltas)
    if kind is CompactionKind.MAJOR:
        return bool(directory.originals) or count + (directory.base is not None) > 1
    pair = len(directory.inserts) == len(directory.delete_deltas) == 1
    return count > 1 and not pair


def _name_taken(directory: AcidDirectory, plan: CompactionPlan) -> NothingToDo | None:
    """P23: without `_v` an output name may be taken, for example by an aborted overwrite."""
    removable = [path.path for path in (*directory.obsolete, *directory.aborted)]
    for path in (*removable, *(hidden.path for hidden in directory.invisible)):
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
    for source in directory.sources:
        if source.name.visibility == txn_id:
            raise CompactionFailed(
                f"{directory.location}/{source.directory} is an output of compaction transaction"
                f" {txn_id} itself and hides its inputs; select with that transaction open"
            )


def _by_bucket(files: Iterable[FileEntry]) -> defaultdict[int, list[FileEntry]]:
    grouped: defaultdict[int, list[FileEntry]] = defaultdict(list)
    for file in files:
        parsed = parse_bucket_file(file.name)
        number = parsed.bucket if parsed else original_bucket(file.name)
        if number is None:
            raise CompactionFailed(
                f"{file.path} has no bucket number in its name; rename it, then compact again"
            )
        grouped[number].append(file)
    return grouped


OPEN_BYTES = 4 << 20
"""Opening a file takes as long as reading this many bytes (Spark's default)."""

ORIGINALS = "original files"


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of rows (or delete events), bytes and files."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.bytes + other.bytes, self.files + other.files)

    @property
    def scan_bytes(self) -> int:
        """The cost of a scan, in bytes."""
        return self.bytes + OPEN_BYTES * self.files


@dataclass(frozen=True, slots=True)
class Share:
    """A directory that the compaction reads or writes, and its size."""

    directory: str
    amount: Amount
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Inputs and expected outputs of a compaction, and after how many scans it pays back."""

    inputs: tuple[Share, ...]
    outputs: tuple[Share, ...]

    @property
    def read(self) -> Amount:
        return sum((share.amount for share in self.inputs), Amount())

    @property
    def written(self) -> Amount:
        return sum((share.amount for share in self.outputs), Amount())

    @property
    def saving(self) -> int:
        """Bytes that each later scan saves; may be negative."""
        return self.read.scan_bytes - self.written.scan_bytes

    @property
    def cost(self) -> int:
        """Bytes read and written: by the merge, and by the validation, which reads both again."""
        return 2 * self.read.scan_bytes + 2 * self.written.scan_bytes

    @property
    def pays_back_after(self) -> int | None:
        """The number of scans after which the savings exceed the cost; None: never."""
        return math.ceil(self.cost / self.saving) if self.saving > 0 else None


def forecast(plan: CompactionPlan, rows: Mapping[str, int]) -> Forecast:
    """The forecast of a plan; `rows` maps directory names to row counts, "" to the original files.

    An output is expected to have the bytes of its inputs, less the share of the deleted rows.
    """
    inputs = _inputs(plan, rows)
    data = sum((share.amount for share in inputs if not share.deletes), Amount())
    events = sum((share.amount for share in inputs if share.deletes), Amount())
    files = len(plan.inputs_by_bucket())
    if plan.kind is CompactionKind.MAJOR:
        live = max(0, data.rows - events.rows)
        size = data.bytes * live // data.rows if data.rows else data.bytes
        return Forecast(inputs, (Share(str(plan.output_base), Amount(live, size, files)),))
    outputs = []
    if plan.output_delete_delta:
        outputs.append(
            Share(
                str(plan.output_delete_delta),
                Amount(events.rows, events.bytes, min(files, events.files)),
                True,
            )
        )
    if plan.output_delta:
        outputs.append(
            Share(str(plan.output_delta), Amount(data.rows, data.bytes, min(files, data.files)))
        )
    return Forecast(inputs, tuple(outputs))


def _inputs(plan: CompactionPlan, rows: Mapping[str, int]) -> tuple[Share, ...]:
    inputs = plan.inputs
    base = [] if inputs.base is None else [(inputs.base.directory, inputs.base.files, False)]
    directories = [
        *([(ORIGINALS, inputs.originals, False)] if inputs.originals else []),
        *base,
        *((delta.directory, delta.files, False) for delta in inputs.inserts),
        *((delta.directory, delta.files, True) for delta in inputs.delete_deltas),
    ]
    return tuple(
        Share(
            name,
            Amount(
                rows.get("" if name == ORIGINALS else name, 0),
                sum(file.size for file in files),
                len(files),
            ),
            deletes,
        )
        for name, files, deletes in directories
    )


@dataclass(frozen=True, slots=True)
class Deviation:
    what: str
    predicted: int
    actual: int

    def __str__(self) -> str:
        return f"{self.what}: {self.predicted:,} expected, {self.actual:,} written"


def against(expected: Forecast, outputs: Iterable[Amount]) -> tuple[Deviation, ...]:
    """Compares the forecast with what was written: rows, bytes and files."""
    before, after = expected.written, sum(outputs, Amount())
    return (
        Deviation("rows", before.rows, after.rows),
        Deviation("bytes", before.bytes, after.bytes),
        Deviation("files", before.files, after.files),
    )
