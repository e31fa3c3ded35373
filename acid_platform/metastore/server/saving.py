"""Writes a snapshot from the log, in a process of its own: the leader goes on meanwhile.

`python -m acid_platform.metastore.server.saving --log WHERE --until POSITION …` reads the snapshot
before and the batches after it, as a start does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from acid_platform.base.databases import Error
from acid_platform.base.local_files import scratch_directory
from acid_platform.errors import BackupRefused, MetastoreDamaged
from acid_platform.metastore.client.start import environment
from acid_platform.metastore.log.contract import Log
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.log.open_log import open_log
from acid_platform.metastore.server.state_file import Origin
from acid_platform.metastore.server.state_tables import publish_state
from acid_platform.metastore.server.store import Store, machine_at

_ATTEMPTS = 5


def start_saving(log: Log, until: int, forget_before: int) -> subprocess.Popen[bytes]:
    """Starts the process; it ends with 0 once the log has the snapshot."""
    command = [sys.executable, "-P", "-m", __name__, "--log", log.where, "--until", str(until)]
    command += ["--forget-before", str(forget_before), "--leader", str(os.getpid())]
    return subprocess.Popen(command, env=environment(), cwd="/", stdin=subprocess.DEVNULL)


def write_copy(log: Log, file: Path) -> Origin:
    """Writes a snapshot of the end of the log to a new file, while its leader goes on.

    Raises BackupRefused if the file exists or can't be written, and what reading the log raises.
    """
    if file.exists():
        raise BackupRefused(f"{file} exists; name a new file")
    if not file.parent.is_dir():
        raise BackupRefused(f"{file} can't be written: {file.parent} is no directory")
    with scratch_directory("copy") as scratch:
        for attempts_left in reversed(range(_ATTEMPTS)):
            store = Store(log, Path(scratch))
            try:
                state = machine_at(store).state
                publish_state(file, state, store.end, store.path)
                break
            except FileExistsError as error:
                raise BackupRefused(f"{file} exists; name a new file") from error
            except (MetastoreDamaged, FileNotFoundError):
                # The leader may have replaced batches by a snapshot meanwhile.
                if not attempts_left:
                    raise
            except (Error, OSError) as error:
                raise BackupRefused(f"{file} can't be written: {error}") from error
            finally:
                store.let_go()
    return store.end


def _end_with(leader: int) -> None:
    """Ends this process after its leader: another log may be at that place then."""
    while os.getppid() == leader:
        time.sleep(0.2)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--forget-before", type=int, required=True)
    parser.add_argument("--leader", type=int, required=True)
    chosen = parser.parse_args()
    os.umask(0o077)
    threading.Thread(target=_end_with, args=(chosen.leader,), daemon=True).start()
    with scratch_directory("saving") as scratch:
        local = "://" not in chosen.log
        log = LocalLog(Path(chosen.log)) if local else open_log(chosen.log)
        store = Store(log, Path(chosen.log if local else scratch))
        state = machine_at(store, chosen.until).state
        if store.saved < chosen.until:  # otherwise another leader was faster
            store.save(state, chosen.forget_before)
        store.close()


if __name__ == "__main__":
    main()
