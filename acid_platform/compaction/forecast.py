"""The cost and savings of a compaction: forecast before it runs, compared with the result after.

The cost of a read is in bytes: the bytes of the files plus `OPEN_BYTES` per file. Row counts are
those that writers reported; files and bytes come from the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.states import CompactionKind

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
