"""A log in a local directory: one write and one fdatasync for each batch (P3).

The directory holds segments `journal-POSITION.log`, named after their first batch, and snapshots
`snapshot-POSITION.duckdb`. Whoever appends holds the directory's lock; anybody may read. A segment
that a snapshot has replaced is used again under another name: writing to blocks that a file already
has is durable sooner (0.17 ms instead of 0.32).

Detected: any changed bit of a batch (CRC-32), a missing position, files of another log. If a later
batch follows, the log is damaged and is refused. If none follows, the broken batch is the last
write, torn by a power cut before it was acknowledged, and the log ends before it.

Not detected: that this last batch was acknowledged and damaged afterwards; and that the log was cut
off after a whole batch.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from acid_platform.base.local_files import sync_data, sync_path
from acid_platform.errors import MetastoreDamaged
from acid_platform.metastore.log import contract
from acid_platform.metastore.log.contract import Batch, Header, Leader, PositionTaken

_SEGMENT_BYTES = 8 << 20
_SPARE = "journal.spare"
_DRAFT = "journal.new"
NEXT_STEP = (
    "put the missing files back, or restore a backup (`acid metastore restore FILE --replace` puts"
    " these files aside); what came after it will be in doubt"
)


class LocalLog:
    """The log in a directory, which exists. `open_to_append` has to precede the first append."""

    def __init__(self, directory: Path, place: Callable[[], str] = lambda: "") -> None:
        """`place` returns where the directory is, for the header of a new segment."""
        self.where = str(directory)
        self.directory, self._place = directory, place
        self._file = -1
        self._end = 0
        self._last = 0
        self._header: Header | None = None
        self.keep_after: int | None = None
        """Batches after this position are kept although a snapshot has them; None: no batch is."""

    @property
    def place(self) -> str:
        return self._place()

    @property
    def begun_at(self) -> str:
        """Where the log was when its newest segment began."""
        return self._newest_header().place

    @property
    def history(self) -> str:
        return self._newest_header().history

    def _newest_header(self) -> Header:
        if self._header is None:
            self._header = self._read_header(self._segments()[-1])
        return self._header

    @property
    def exists(self) -> bool:
        """Whether the directory holds a log."""
        return bool(self._segments() or self.snapshots())

    # --- appending ------------------------------------------------------------------------------

    def create(self, after: int = 0) -> None:
        self._begin_segment(secrets.token_hex(8), after + 1)

    def open_to_append(self) -> None:
        """Every batch that is found is made durable, even if its writer was killed before it synced
        it or the name of its segment."""
        self.close()
        path = self._newest_segment()
        sync_path(self.directory)
        self._header = self._read_header(path)
        self._file = os.open(path, os.O_RDWR)
        try:
            data = path.read_bytes()
            batches, self._end = contract.decode_batches(data, self._header)
            self._last = self._header.first - 1 + len(batches)
            self._require_saved_batches(path)
            if batches:
                # After a failed fdatasync the page cache may still show it, so it is written again.
                last = contract.encode_batch(batches[-1], self._header.seed)
                _write(self._file, last, self._end - len(last))
                sync_data(self._file)
        except BaseException:
            self.close()
            raise

    def _require_saved_batches(self, path: Path) -> None:
        saved = max(self.snapshots(), default=0)
        if self._last < saved:
            raise MetastoreDamaged(
                f"{path} ends with batch {self._last}, but there is a snapshot of batch {saved}:"
                f" what came after it may be lost; {NEXT_STEP}"
            )

    def append(self, batch: Batch) -> None:
        assert self._header is not None
        if batch.position != self._last + 1:
            raise PositionTaken(
                f"{self.directory} ends with batch {self._last}, so batch {batch.position} is not"
                " the next one"
            )
        if self._end >= _SEGMENT_BYTES:
            self._begin_segment(self._header.history, batch.position)
        data = contract.encode_batch(batch, self._header.seed)
        try:
            _write(self._file, data, self._end)
            sync_data(self._file)
        except BaseException:
            self._take_back()
            raise
        self._end += len(data)
        self._last = batch.position

    def note_place(self, copied: bool) -> None:
        """Notes that the directory was moved, or copied: then what follows is another history."""
        history = secrets.token_hex(8) if copied else self.history
        self._begin_segment(history, self._last + 1)

    def _begin_segment(self, history: str, first: int) -> None:
        header = Header.new(history, first, self.place, self._follows(first))
        spare, path = self.directory / _SPARE, self.directory / contract.segment_name(first)
        draft = spare if spare.exists() else self.directory / _DRAFT
        file = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _write(file, header.line, 0)
            sync_data(file)
            os.rename(draft, path)
            sync_path(self.directory)
        except BaseException:
            os.close(file)
            raise
        self.close()
        self._file, self._header = file, header
        self._end, self._last = len(header.line), first - 1

    def _follows(self, first: int) -> str:
        before = self._header
        if before is None:
            return ""
        return before.follows if before.first == first else before.history

    def _take_back(self) -> None:
        """Removes a batch that was not made durable; if that fails too, the log is closed."""
        try:
            os.ftruncate(self._file, self._end)
            sync_data(self._file)
        except OSError:
            self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    # --- reading --------------------------------------------------------------------------------

    def read(self, after: int) -> Iterator[Batch]:
        paths = self._segments()
        if not paths:
            raise MetastoreDamaged(f"{self.directory} holds no journal; {NEXT_STEP}")
        firsts = [_first(path) for path in paths]
        begin = max(bisect_right(firsts, after + 1) - 1, 0)
        expected = firsts[begin]
        if expected > after + 1:
            raise MetastoreDamaged(
                f"the journal in {self.directory} begins with batch {expected}, but batch"
                f" {after + 1} is needed; {NEXT_STEP}"
            )
        history = None
        for number in range(begin, len(paths)):
            path = paths[number]
            if firsts[number] != expected:
                raise MetastoreDamaged(
                    f"{self.directory} lacks batches {expected} to {firsts[number] - 1};"
                    f" {NEXT_STEP}"
                )
            header = self._read_header(path)
            if history not in (None, header.history, header.follows):
                raise MetastoreDamaged(f"{path} belongs to another log; {NEXT_STEP}")
            history = header.history
            batches = self._batches(path, header, newest=number == len(paths) - 1)
            yield from (batch for batch in batches if batch.position > after)
            expected += len(batches)

    def _batches(self, path: Path, header: Header, newest: bool) -> list[Batch]:
        """Raises FileNotFoundError if the file is used for another segment by now."""
        broken_at = -1
        while True:
            data = path.read_bytes()
            path.stat()
            batches, end = contract.decode_batches(data, header)
            last = header.first - 1 + len(batches)
            later = contract.batch_after(data, end, header, last) if newest else None
            if later is None:
                return batches
            if end == broken_at:
                raise MetastoreDamaged(
                    f"{path} is damaged at byte {end}: batch {last + 1} can't be read, and batch"
                    f" {later.position} comes after it; {NEXT_STEP}"
                )
            broken_at = end  # unless it was written while the file was read

    def require_history(self, history: str, path: Path) -> None:
        """Raises MetastoreDamaged if a snapshot with this history belongs to another log."""
        headers = map(self._read_header, self._segments())
        if not any(history in (header.history, header.follows) for header in headers):
            raise MetastoreDamaged(f"{path} belongs to another log; {NEXT_STEP}")

    def _read_header(self, path: Path) -> Header:
        with path.open("rb") as file:
            line = file.readline(10_000)
        header = Header.parse(line)
        if header is None or header.first != _first(path):
            raise MetastoreDamaged(f"{path} is damaged at byte 0, its header; {NEXT_STEP}")
        return header

    def _segments(self) -> list[Path]:
        names = sorted(os.listdir(self.directory))  # positions have a fixed width
        return [self.directory / name for name in names if contract.segment_first(name)]

    def _newest_segment(self) -> Path:
        paths = self._segments()
        if not paths:
            raise MetastoreDamaged(
                f"{self.directory} has a snapshot and no journal, which may hold commits that the"
                f" snapshot does not; {NEXT_STEP}"
            )
        return paths[-1]

    # --- snapshots ------------------------------------------------------------------------------

    def snapshots(self) -> list[int]:
        positions = map(contract.snapshot_position, os.listdir(self.directory))
        return sorted(position for position in positions if position is not None)

    def get_snapshot(self, position: int, directory: Path) -> Path:  # noqa: ARG002 (Log has it)
        path = self.directory / contract.snapshot_name(position)
        if not path.exists():
            raise FileNotFoundError(path)
        return path

    def put_snapshot(self, position: int, file: Path, keep_since: int | None = None) -> None:  # noqa: ARG002
        """`file` must be on the same file system. An archive keeps what a restore needs."""
        os.chmod(file, 0o600)
        sync_path(file)
        os.rename(file, self.directory / contract.snapshot_name(position))
        sync_path(self.directory)
        for older in self.snapshots():
            if older < position:
                (self.directory / contract.snapshot_name(older)).unlink()

    def release(self) -> None:
        """Gives up segments that a snapshot and an archive have replaced.

        Only the process that appends may call this.
        """
        newest = max(self.snapshots(), default=0)
        needed = newest if self.keep_after is None else min(newest, self.keep_after)
        paths = self._segments()
        for path, following in pairwise(paths):
            if _first(following) > needed + 1:
                break
            spare = self.directory / _SPARE
            if spare.exists():
                path.unlink()
            else:
                os.rename(path, spare)

    # --- the leader -----------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        """Nobody: whoever holds the directory's lock may append."""
        return None

    def set_leader(self, before: Leader | None, after: Leader) -> bool:  # noqa: ARG002 (Log has it)
        return True


def _first(path: Path) -> int:
    first = contract.segment_first(path.name)
    assert first is not None
    return first


def _write(file: int, data: bytes, at: int) -> None:
    # On a full disk a write may succeed in part, and only the next write fails.
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
