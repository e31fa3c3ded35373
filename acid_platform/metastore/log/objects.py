"""A log below a prefix of an object store, or in a directory of archives.

The names and bytes are those of the local log: segments `journal-POSITION.log`, usually of one
batch, and snapshots `snapshot-POSITION.duckdb`. Besides them `log.json` names the history and
`leader.json` the leader. Nothing else may lie below the prefix.

A segment is put only if its name is free (If-None-Match), and each writer puts its next one at the
position after the end that it knows. So two writers can't both succeed there, and no position lies
in two segments. A put whose outcome is unknown is tried again; if the name is taken then, the bytes
tell whose it is.

What a snapshot replaces is deleted, except the first segment of each epoch, which `epoch-POSITION`
marks. A leader that was replaced and does not know it will try that position: it must stay taken.

Objects may lie in a local directory, for archives: obstore's own does not sync what it writes.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
import shutil
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, TypeVar

from acid_platform.base.local_files import create_private, make_directory, sync_path
from acid_platform.base.object_store import BY_SCHEME
from acid_platform.base.paths import local_path
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreDamaged,
    MetastoreIncompatible,
    MetastoreUnavailable,
    StoreUnavailable,
)
from acid_platform.metastore.log import contract
from acid_platform.metastore.log.contract import Batch, Beginning, Header, Leader, SharedLog

_DRAFT = ".draft-"
"""Begins the name of a file that is being written; listings don't show it."""


class Folder:
    """The files of a directory, which is made when the first one is written.

    Methods raise OSError, as for a full disk; then nothing was written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.place = f"file://{directory.resolve()}"

    def create(self, name: str, data: bytes) -> None:
        with self._written(data) as draft:
            os.link(draft, self._directory / name)

    def replace(self, name: str, data: bytes, version: object) -> None:
        with self._written(data) as draft, self._locked():
            if (self._directory / name).read_bytes() != version:
                raise FileExistsError(name)
            os.rename(draft, self._directory / name)

    def get(self, name: str) -> tuple[bytes, object]:
        data = (self._directory / name).read_bytes()
        return data, data

    def names(self, after: str = "") -> list[str]:
        if not self._directory.exists():
            return []
        names = os.listdir(self._directory)
        return sorted(name for name in names if name > after and not name.startswith("."))

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            (self._directory / name).unlink(missing_ok=True)
        if names:
            sync_path(self._directory)

    def upload(self, name: str, file: Path) -> None:
        with self._written(file) as draft:
            os.rename(draft, self._directory / name)

    def download(self, name: str, file: Path) -> None:
        shutil.copyfile(self._directory / name, file)

    def check(self, name: str) -> bool:
        """A link fails if its name exists, on every file system that has links."""
        return (self._directory / name).exists()

    @contextmanager
    def _written(self, content: bytes | Path) -> Iterator[Path]:
        """A synced file for a name of the directory, which is synced when the block ends."""
        make_directory(self._directory, 0o700)
        draft = self._directory / f"{_DRAFT}{token_hex(8)}"
        try:
            with create_private(draft) as file:
                if isinstance(content, Path):
                    with open(content, "rb") as source:
                        shutil.copyfileobj(source, file)
                else:
                    file.write(content)
            sync_path(draft)
            yield draft
        finally:
            draft.unlink(missing_ok=True)
            sync_path(self._directory)  # also if the name exists: maybe it was never synced

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Excludes other processes and threads that replace an object."""
        file = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


LOG = "log.json"
"""The object that every log has."""


class Objects(Protocol):
    """Named objects. Any thread may use them.

    All methods raise StoreUnavailable if the outcome is unknown, and StoreRefused.
    """

    place: str

    def create(self, name: str, data: bytes) -> None:
        """Raises FileExistsError if there is such an object."""

    def replace(self, name: str, data: bytes, version: object) -> None:
        """Raises FileExistsError if the object is no longer the one that had this version."""

    def get(self, name: str) -> tuple[bytes, object]:
        """The content, and a version for `replace`. Raises FileNotFoundError."""

    def names(self, after: str = "") -> list[str]:
        """The names of objects in their order, beginning after the name `after`."""

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects in this order or all at once; some may be gone."""

    def upload(self, name: str, file: Path) -> None:
        """Puts a file of any size. Nobody sees a part of it."""

    def download(self, name: str, file: Path) -> None:
        """Writes the object to a file. Raises FileNotFoundError."""

    def check(self, name: str) -> bool:
        """Whether the store honours conditions, tried on this object, which exists."""


def objects_at(url: str, seconds: float) -> Objects:
    """The objects below a prefix. `seconds`: how long a request may take.

    Raises InvalidDefinition, and ModuleNotFoundError if obstore is missing.
    """
    if url.startswith("file:"):
        return Folder(Path(local_path(url)))
    scheme, _, rest = url.partition("://")
    if scheme not in BY_SCHEME or not rest.partition("/")[2] or "?" in rest:
        raise InvalidDefinition(
            f"{url}: write the bucket and a prefix, as in s3://bucket/prefix; other stores begin"
            f" with {', '.join(f'{scheme}://' for scheme in BY_SCHEME)}"
        )
    from acid_platform.metastore.log.bucket import StorePrefix

    return StorePrefix(url, seconds)


def logs_below(url: str) -> list[str]:
    """The names of the prefixes below this one that hold a log, as of the histories in an archive.

    Raises InvalidDefinition, StoreUnavailable, StoreRefused.
    """
    names = objects_at(url.rstrip("/"), 30).names()
    if url.startswith("file:"):
        path = Path(local_path(url))
        names = [f"{name}/{LOG}" for name in names if (path / name / LOG).exists()]
    return [name.partition("/")[0] for name in names if name.count("/") == 1 and LOG in name]


_LEADER = "leader.json"
_AHEAD = 16
"""So many segments are fetched at once."""
_Answer = TypeVar("_Answer")


class ObjectLog(SharedLog):
    """Besides the errors of Log, methods raise StoreRefused if the store refuses the credentials or
    has no such bucket."""

    def __init__(self, url: str, patience: float = 10) -> None:
        """`url`: `s3://bucket/prefix`, `gs://…`, `az://…`, `abfss://…` or `file:///directory`.

        `patience`: for how many seconds a failing request is tried again. Raises InvalidDefinition.
        """
        super().__init__(url.rstrip("/"))
        self._patience = patience
        self._objects = objects_at(self.where, max(0.5, min(patience / 3, 30)))
        self._checked = False
        self._tail = (0, 0)
        """The first and last position of the segment that was read last."""

    @property
    def place(self) -> str:
        return self._objects.place

    @property
    def exists(self) -> bool:
        try:
            self._patiently(lambda: self._objects.get(LOG))
        except FileNotFoundError:
            return False
        return True

    @cached_property
    def beginning(self) -> Beginning:
        try:
            data, _ = self._patiently(lambda: self._objects.get(LOG))
        except FileNotFoundError:
            raise MetastoreDamaged(f"{self.place} holds no log: it has no {LOG}") from None
        return Beginning(**self._parsed(LOG, data))

    # --- appending ------------------------------------------------------------------------------

    def create(self, after: int = 0) -> None:
        """Raises FileExistsError if there is anything below the prefix, and MetastoreIncompatible
        if the store ignores conditions."""
        if names := self._patiently(self._objects.names):
            raise FileExistsError(f"{self.place} is not empty: it holds {names[0]}")
        beginning = Beginning.new(self.place, after)
        try:
            self._create(LOG, json.dumps(asdict(beginning)).encode())
        except FileExistsError:
            raise FileExistsError(f"{self.place}: another process has begun a log") from None
        try:
            self._check()
        except MetastoreIncompatible:
            self._patiently(lambda: self._objects.delete([LOG]))
            raise
        self.beginning = beginning

    def remove_unused(self) -> bool:
        unused = {LOG, contract.snapshot_name(self.beginning.after)}
        names = self._patiently(self._objects.names)
        if not self.beginning.after or not unused.issuperset(names):
            return False
        self._forget([name for name in names if name != LOG])
        self._forget([LOG])
        return True

    def _check(self) -> None:
        if not self._checked and not self._patiently(lambda: self._objects.check(LOG)):
            raise MetastoreIncompatible(
                f"{self.place}: this store ignores If-None-Match or If-Match of a PUT, so two"
                " processes could overwrite each other's commits; use a store that honours both"
            )
        self._checked = True

    def open_to_append(self) -> None:
        """Raises MetastoreIncompatible if the store ignores conditions."""
        newest = self._saved()
        self._check()
        last = epoch = 0
        for first in self._firsts(newest)[-1:]:
            batch = self._fetch(first)[-1]
            last, epoch = batch.position, batch.epoch
        self._end_at(newest, last, epoch)

    def append(self, batch: Batch) -> None:
        self._put([batch], marked=True)

    def append_all(self, batches: Sequence[Batch]) -> None:
        """Appends consecutive batches as one segment: for archives, whose batches are elsewhere
        too. Raises PositionTaken as `append` does."""
        if batches:
            self._put(batches, marked=False)

    def _put(self, batches: Sequence[Batch], marked: bool) -> None:
        first, name = batches[0].position, contract.segment_name(batches[0].position)
        is_next = self._is_next(batches[0])
        data = contract.encode_segment(
            Header(self.history, first, self.place, self._number), batches
        )
        try:
            if not is_next:  # the name may be deleted
                if self._patiently(lambda: self._objects.get(name))[0] != data:
                    raise FileExistsError(name)
                return
            if marked and batches[0].epoch != self._epoch:
                self._create(_mark(first), b"")
            self._create(name, data)
        except (FileExistsError, FileNotFoundError):
            raise self._taken(first) from None
        self._last, self._epoch = batches[-1].position, batches[-1].epoch

    def _create(self, name: str, data: bytes) -> None:
        """Raises FileExistsError if the object has other bytes, even after lost answers."""

        def attempt() -> None:
            try:
                self._objects.create(name, data)
            except FileExistsError:
                if self._now(name) != data:
                    raise

        self._patiently(attempt)

    def _now(self, name: str) -> bytes:
        """The bytes of an object that exists according to the store, but for a pending request."""
        try:
            return self._objects.get(name)[0]
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{self.place}: a request for {name} is pending") from error

    def _patiently(self, call: Callable[[], _Answer]) -> _Answer:
        """Tries again until the outcome is known. Raises MetastoreUnavailable after `patience`."""
        until, pause = time.monotonic() + self._patience, 0.05
        while True:
            try:
                return call()
            except StoreUnavailable as error:
                left = until - time.monotonic()
                if left <= 0:
                    raise MetastoreUnavailable(
                        f"{error}; it failed for {self._patience:g} s: check the network and the"
                        " store, then try again"
                    ) from error
            time.sleep(min(left, pause * random.uniform(0.5, 1)))
            pause = min(2 * pause, 1)

    # --- reading --------------------------------------------------------------------------------

    def read(self, after: int) -> Iterator[Batch]:
        """Fetches several segments at a time.

        Raises BatchesForgotten if a snapshot has replaced the batches, even while they are read.
        """
        if after < self.beginning.after:
            raise self._lacks(after + 1)
        firsts = self._firsts(after)
        if len(firsts) == 1 and self._tail == (firsts[0], after):
            return  # a standby asks again and again
        expected = None
        for first, batches in self._fetched(firsts):
            if first != (expected or min(first, after + 1)):
                raise self._lacks(max(expected or 0, after + 1))
            yield from (batch for batch in batches if batch.position > after)
            expected = batches[-1].position + 1
            self._tail = (first, expected - 1)

    def _fetched(self, firsts: Sequence[int]) -> Iterator[tuple[int, list[Batch]]]:
        with ThreadPoolExecutor(_AHEAD) as pool:
            pending: deque[tuple[int, Future[list[Batch]]]] = deque()
            for first in firsts:
                pending.append((first, pool.submit(self._fetch, first)))
                if len(pending) >= _AHEAD:
                    begun, fetching = pending.popleft()
                    yield begun, fetching.result()
            for begun, fetching in pending:
                yield begun, fetching.result()

    def _fetch(self, first: int) -> list[Batch]:
        """The batches of a segment, of which there is at least one."""
        name = contract.segment_name(first)
        try:
            data, _ = self._patiently(lambda: self._objects.get(name))
        except FileNotFoundError:
            raise self._lacks(first) from None
        header = Header.parse(data)
        if header is None or header.first != first:
            raise MetastoreDamaged(f"{name} of {self.place} is damaged at byte 0, its header")
        batches, end = contract.decode_batches(data, header)
        if end != len(data) or not batches:
            raise MetastoreDamaged(
                f"{name} of {self.place} is damaged at byte {end}: batch {first + len(batches)}"
                " can't be read; put the object back, or restore a backup"
            )
        return batches

    def _firsts(self, after: int) -> list[int]:
        """The first positions of the segments from that on which holds the batch after this one,
        or this one if it is the last."""
        # Just before the name, so that a segment of this one batch is listed.
        near = self._positions(contract.segment_first, contract.segment_name(after).split(".")[0])
        if not near or near[0] > after + 1:  # a longer segment may hold it
            near = self._positions(contract.segment_first)
        return near[max(bisect_right(near, after + 1) - 1, 0) :]

    def _positions(self, parse: Callable[[str], int | None], after: str = "") -> list[int]:
        names = self._patiently(lambda: self._objects.names(after))
        return [position for name in names if (position := parse(name)) is not None]

    # --- snapshots ------------------------------------------------------------------------------

    def snapshots(self) -> list[int]:
        return self._positions(contract.snapshot_position, "snapshot-")

    def get_snapshot(self, position: int, directory: Path) -> Path:
        name = contract.snapshot_name(position)
        path = directory / name
        try:
            self._patiently(lambda: self._objects.download(name, path))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def put_snapshot(self, position: int, file: Path, keep_since: int | None = None) -> None:
        """The moment of a snapshot is that of the batch at its position, which is kept with it."""
        name = contract.snapshot_name(position)
        self._patiently(lambda: self._objects.upload(name, file))
        file.unlink()
        oldest = position if keep_since is None else self._oldest_needed(keep_since)
        # Snapshots first: the batches after one that is listed are there.
        self._forget([contract.snapshot_name(each) for each in self.snapshots() if each < oldest])
        marked = set(self._positions(_marked, "epoch-"))
        replaced = [
            contract.segment_name(first)
            for first, following in pairwise(self._positions(contract.segment_first, "journal-"))
            if following <= oldest and first not in marked
        ]
        self._forget(replaced)

    def _oldest_needed(self, keep_since: int) -> int:
        """The newest snapshot whose batch was made at or before this moment; 0 if there is none."""
        for position in reversed(self.snapshots()):
            for first in self._firsts(position - 1)[:1]:
                for batch in self._fetch(first):
                    if batch.position == position and batch.made <= keep_since:
                        return position
        return 0

    def _forget(self, names: list[str]) -> None:
        if names:
            self._patiently(lambda: self._objects.delete(names))

    # --- the leader -----------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        try:
            data, _ = self._patiently(lambda: self._objects.get(_LEADER))
        except FileNotFoundError:
            return None
        return self._leader(data)

    def _leader(self, data: bytes) -> Leader:
        return Leader(**self._parsed(_LEADER, data)["leader"])

    def set_leader(self, before: Leader | None, after: Leader) -> bool:
        # The number tells this call from every other one, should its answer be lost.
        data = json.dumps({"leader": asdict(after), "number": secrets.token_hex(8)}).encode()

        def attempt() -> bool:
            try:
                current, version = self._objects.get(_LEADER)
            except FileNotFoundError:
                if before is not None:
                    return False
                current, version = b"", None
            if current == data:
                return True
            if (self._leader(current) if current else None) != before:
                return False
            try:
                if current:
                    self._objects.replace(_LEADER, data, version)
                else:
                    self._objects.create(_LEADER, data)
            except FileExistsError:
                now = self._now(_LEADER)
                if now == current:  # S3 says so too while another request is pending
                    raise StoreUnavailable(f"{self.place}: a request is pending") from None
                return now == data
            return True

        return self._patiently(attempt)

    def _parsed(self, name: str, data: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(data)
            assert isinstance(fields, dict)
        except (ValueError, AssertionError):
            raise MetastoreDamaged(f"{name} of {self.place} is no JSON object") from None
        return fields


def _mark(first: int) -> str:
    return f"epoch-{first:016}"


def _marked(name: str) -> int | None:
    """The position in the name of a mark; None for another file."""
    digits = name.removeprefix("epoch-")
    return int(digits) if digits != name and digits.isdecimal() else None
