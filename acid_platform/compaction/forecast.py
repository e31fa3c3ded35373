"""What a compaction costs and what it saves: told before it runs, compared with what it did after.

Reading is counted in bytes: those of the files, and `OPEN_BYTES` for each file that a reader opens.
Rows are those that writers reported (P8); files and bytes are those of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.states import CompactionKind

OPEN_BYTES = 4 << 20
"""Opening a file takes as long as reading so much (`spark.sql.files.openCostInBytes`)."""

ORIGINALS = "original files"


@dataclass(frozen=True, slots=True)
class Amount:
    """Rows (or delete events), bytes and files of something."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.bytes + other.bytes, self.files + other.files)

    @property
    def scan_bytes(self) -> int:
        """What a scan of it costs, in bytes."""
        return self.bytes + OPEN_BYTES * self.files


@dataclass(frozen=True, slots=True)
class Share:
    """A directory that is read or made."""

    directory: str
    amount: Amount
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """Inputs, expected outputs, and when the work pays back."""

    inputs: tuple[Share, ...]
    outputs: tuple[Share, ...]

    @property
    def read(self) -> Amount:
        return sum((one.amount for one in self.inputs), Amount())

    @property
    def written(self) -> Amount:
        return sum((one.amount for one in self.outputs), Amount())

    @property
    def saving(self) -> int:
        """Bytes by which each later scan gets cheaper; may be negative."""
        return self.read.scan_bytes - self.written.scan_bytes

    @property
    def cost(self) -> int:
        """Bytes read and written: the merge, and the validation that reads both sides again."""
        return 2 * self.read.scan_bytes + 2 * self.written.scan_bytes

    @property
    def pays_back_after(self) -> int | None:
        """After so many scans; None: never."""
        return math.ceil(self.cost / self.saving) if self.saving > 0 else None


def forecast(plan: CompactionPlan, rows: Mapping[str, int]) -> Forecast:
    """Of a plan; `rows` by the name of the directory, under "" those of original files.

    An output is expected to have the bytes of its inputs, less the share of the deleted rows.
    """
    inputs = _inputs(plan, rows)
    data = sum((one.amount for one in inputs if not one.deletes), Amount())
    events = sum((one.amount for one in inputs if one.deletes), Amount())
    files = len(plan.inputs_by_bucket())
    if plan.kind is CompactionKind.MAJOR:
        kept = max(0, data.rows - events.rows)
        size = data.bytes * kept // data.rows if data.rows else data.bytes
        return Forecast(inputs, (Share(str(plan.output_base), Amount(kept, size, files)),))
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
    shares = []
    if plan.originals:
        size = sum(one.size for one in plan.originals)
        shares.append(Share(ORIGINALS, Amount(rows.get("", 0), size, len(plan.originals))))
    bases = () if plan.base is None else (plan.base,)
    for one in (*bases, *plan.inserts, *plan.deletes):
        size = sum(file.size for file in one.files)
        shares.append(
            Share(
                one.directory,
                Amount(rows.get(one.directory, 0), size, len(one.files)),
                one in plan.deletes,
            )
        )
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class Deviation:
    """One amount as it was expected and as it came out."""

    what: str
    predicted: int
    actual: int

    def __str__(self) -> str:
        return f"{self.what}: {self.predicted:,} expected, {self.actual:,} written"


def against(expected: Forecast, outputs: Iterable[Amount]) -> tuple[Deviation, ...]:
    """The forecast beside what was really written."""
    before, after = expected.written, sum(outputs, Amount())
    return (
        Deviation("rows", before.rows, after.rows),
        Deviation("bytes", before.bytes, after.bytes),
        Deviation("files", before.files, after.files),
    )
