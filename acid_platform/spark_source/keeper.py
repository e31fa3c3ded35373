"""A process that keeps the transactions of a Spark application alive (P12, P42).

Spark plans a read or a write in one Python process and commits it in another, minutes or hours
later. Neither lives long enough for heartbeats. So one keeper runs beside each driver, for each
warehouse that it uses. It heartbeats what is named in its directory, one file for each transaction,
and ends with the driver's JVM, whose transactions it aborts then.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from acid_platform.base.clock import wall_ms
from acid_platform.base.local_files import own_directory, parents
from acid_platform.base.location import Location
from acid_platform.errors import (
    AcidError,
    NoSuchTxn,
    SnapshotExpired,
    TxnAborted,
)
from acid_platform.metastore.client.metastore import Metastore, OpenTransaction
from acid_platform.metastore.endpoint import absolute_files

if TYPE_CHECKING:
    import psutil

_TICK_SECONDS = 0.5
_IDLE_SECONDS = 60.0
"""A keeper without transactions ends after this time."""
_LONGEST_MS = 24 * 3600 * 1000
"""A write that neither committed nor aborted is given up after this time."""


@dataclass(frozen=True, slots=True)
class HeldTransaction:
    """A transaction that the keeper keeps alive.

    `lease`: it only reads. `key`: of the streaming query that writes, if that is known. `location`:
    a path or URI that names the file system of its files, which are in the directory `staging`.
    """

    txn: int
    lease: bool
    key: str = ""
    location: str = ""
    staging: str = ""
    since: int = 0
    """Milliseconds since 1970."""


def hold(location: Location, held: HeldTransaction) -> None:
    """Keeps a transaction alive until `let_go`, or as long as this Spark application lives.

    The caller has heard from the metastore just now, so the keeper has time to start.
    """
    directory = _directory(location)
    draft = directory / f".{held.txn}-{uuid.uuid4().hex}"
    draft.write_text(json.dumps(asdict(held)))
    draft.replace(directory / str(held.txn))
    _start(location, directory)


def let_go(location: Location, txn: int) -> None:
    """To be called when the transaction has ended."""
    (_directory(location) / str(txn)).unlink(missing_ok=True)


def held_for(location: Location, key: str) -> list[HeldTransaction]:
    """What is kept under a key that is not empty."""
    return [held for held in _all(_directory(location)) if key and held.key == key]


@cache
def _directory(location: Location) -> Path:
    """The keeper's directory, which only this user can read. Raises OwnedByOthers."""
    owner = _owner()
    above = Path(parents()[0], f"acid-keeper-{os.getuid()}")
    directory = f"{owner.pid}-{int(owner.create_time())}-{name_of(location)}"
    return own_directory(own_directory(above) / directory)


def name_of(location: Location) -> str:
    """The part of the directory's name that stands for the warehouse and its metastore."""
    return hashlib.sha256(f"{location.warehouse}\0{location.metastore}".encode()).hexdigest()[:12]


def _owner() -> psutil.Process:
    """The driver's JVM, which has started this process or its parent; else the parent."""
    import psutil  # executors import this module and may lack it

    parents = psutil.Process().parents()
    java = (parent for parent in parents if parent.name().startswith("java"))
    return next(java, parents[0] if parents else psutil.Process())


def _all(directory: Path) -> Iterator[HeldTransaction]:
    with suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.isdigit():
                with suppress(FileNotFoundError):
                    yield HeldTransaction(**json.loads((directory / name).read_text()))


def _start(location: Location, directory: Path) -> None:
    """Starts a keeper unless one runs: whoever holds the lock sees every file before it ends."""
    lock = _locked(directory)
    if lock is None:
        return
    lock.close()
    owner = _owner()
    command = [sys.executable, "-P", "-m", __name__, str(directory), *_texts(location)]
    paths = [str(Path(__file__).resolve().parents[2]), *filter(os.path.isabs, sys.path)]
    started = subprocess.Popen(
        [*command, str(owner.pid), str(owner.create_time())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={
            **os.environ,
            **absolute_files(os.environ),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        },
        start_new_session=True,
    )
    _started.append(started)


_started: list[subprocess.Popen[bytes]] = []
"""Keepers that this process has started: they outlive it, and nobody waits for them."""


def _texts(location: Location) -> tuple[str, str]:
    return location.warehouse, location.metastore


def _locked(directory: Path) -> IO[str] | None:
    """The keeper's lock; None if another process holds it."""
    lock = open(directory / "lock", "a")  # noqa: SIM115, the caller closes it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


# --- the process ----------------------------------------------------------------------------------


class Keeper:
    """Keeps alive what is named in a directory."""

    def __init__(self, directory: Path, location: Location) -> None:
        self._directory, self._place = directory, location
        self._metastore: Metastore | None = None
        self._held: dict[int, tuple[HeldTransaction, OpenTransaction]] = {}

    def tick(self) -> bool:
        """Takes what is new, forgets what is gone or over; returns whether there is anything."""
        named = {held.txn: held for held in _all(self._directory)}
        for txn_id in [txn_id for txn_id in self._held if txn_id not in named]:
            self._held.pop(txn_id)[1].forget()
        for txn_id, held in named.items():
            if txn_id not in self._held:
                self._resume(held)
            elif self._held[txn_id][1].lost:
                self._forget(txn_id)
            elif not held.lease and wall_ms() - held.since > _LONGEST_MS:
                self._end(txn_id, "its write has not ended for a day")
        return bool(named)

    def end(self) -> None:
        """Ends everything: the Spark application is gone."""
        self.tick()
        for txn_id in list(self._held):
            self._end(txn_id, "its Spark application has ended")
        shutil.rmtree(self._directory, ignore_errors=True)

    def _resume(self, held: HeldTransaction) -> None:
        """A metastore that can't be reached now is asked again at the next tick."""
        try:
            if self._metastore is None:
                # It never starts a metastore: whoever uses it next does.
                home, root = self._place.metastore, self._place.warehouse
                self._metastore = Metastore.connect(home, autostart=False, root=root)
            txn = self._metastore.resume(held.txn, read_only=held.lease)
            self._held[held.txn] = held, txn
        except (NoSuchTxn, SnapshotExpired, TxnAborted):
            self._forget(held.txn)
        except AcidError:
            pass

    def _end(self, txn_id: int, why: str) -> None:
        with suppress(AcidError):
            self._held[txn_id][1].abort(why)
        self._forget(txn_id)

    def _forget(self, txn_id: int) -> None:
        self._held.pop(txn_id, None)
        (self._directory / str(txn_id)).unlink(missing_ok=True)


def run(directory: Path, location: Location, pid: int, created: float) -> None:
    """Keeps until the application with this process has ended, or nothing is left to keep."""
    lock = _locked(directory)
    if lock is None:
        return
    _sweep(directory)
    keeper = Keeper(directory, location)
    busy = time.monotonic()
    while _lives(pid, created):
        if keeper.tick():
            busy = time.monotonic()
        elif time.monotonic() - busy > _IDLE_SECONDS:
            lock.close()
            # Who named a transaction before this moment saw the lock, and started no other keeper.
            lock = _locked(directory) if any(_all(directory)) else None
            if lock is None:
                return
            busy = time.monotonic()
        time.sleep(_TICK_SECONDS)
    keeper.end()


def _sweep(own: Path) -> None:
    """Removes the directories of keepers that were killed together with their applications."""
    for other in own.parent.iterdir():
        pid, _, rest = other.name.partition("-")
        created = rest.partition("-")[0]
        if pid.isdigit() and created.isdigit() and not _lives(int(pid), int(created) + 0.5):
            shutil.rmtree(other, ignore_errors=True)


def _lives(pid: int, created: float) -> bool:
    import psutil

    try:
        owner = psutil.Process(pid)
        same = abs(owner.create_time() - created) < 1.0
        return bool(same and owner.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


if __name__ == "__main__":
    _directory_text, _warehouse, _home, _pid, _created = sys.argv[1:]
    run(Path(_directory_text), Location(_warehouse, _home), int(_pid), float(_created))
