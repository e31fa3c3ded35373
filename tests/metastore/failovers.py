"""`python -m tests.metastore.failovers TIMES [--tls] [--results FILE]`: primaries are killed under
writers (P10).

Eight processes create databases, each name once. The primary is killed with SIGKILL, its standby
takes over, and the old primary becomes the standby of the new one. After each kill every database
whose creation was acknowledged must be there. The result is added to those in FILE (JSON).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from acid_platform import MetastoreUnavailable, OutcomeUnknown
from acid_platform.metastore import Metastore, address
from acid_platform.metastore.certificates import make_certificate
from benchmarks.results import machine, save
from tests.metastore.processes import until
from tests.metastore.replicated import KEY, Member, both

WRITERS = 8


def write(uri: str, writer: int, log: Path, stop: Path) -> None:
    """Commits until told to stop; what was acknowledged goes to the log, a line each."""
    number = 0
    with log.open("a", buffering=1) as acknowledged, Metastore.connect(uri) as client:
        while not stop.exists():
            number += 1
            name = f"w{writer}_{number}"
            began = time.monotonic()
            # What is not acknowledged may or may not be there.
            with suppress(OutcomeUnknown, MetastoreUnavailable):
                client.create_database(name)
                with client.begin() as transaction:
                    txn = transaction.id
                seconds = time.monotonic() - began
                acknowledged.write(json.dumps([name, txn, time.time(), seconds]) + "\n")


def main(times: int, tls: bool = False, results: Path | None = None) -> int:
    os.environ[address.KEY] = KEY
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        stop, lost, pauses = root / "stop", 0, []
        primary, standby = Member(root / "a"), Member(root / "b")
        if tls:
            os.environ[address.TLS_CA] = make_certificate(primary.home.tls, ["127.0.0.1"]).ca
            shutil.copytree(primary.home.tls, standby.home.tls)
        primary.start()
        with primary.local() as client:
            client.set("acid.metastore.idle.exit", "0s")
        standby.follow(primary)
        until(standby.is_synchronous)
        logs = [root / f"writer{writer}.log" for writer in range(WRITERS)]
        context = multiprocessing.get_context("spawn")
        writers = [
            context.Process(target=write, args=(both(primary, standby), writer, log, stop))
            for writer, log in enumerate(logs)
        ]
        for process in writers:
            process.start()
        try:
            until(lambda: all(log.exists() and log.read_text() for log in logs), 60)
            for kill in range(1, times + 1):
                time.sleep(0.5)
                killed = time.time()
                primary.kill()
                primary, standby = standby, primary
                until(primary.is_primary, 30)
                until(lambda at=killed: _first_after(logs, at) is not None, 30)  # type: ignore[misc]
                pauses.append((_first_after(logs, killed) or 0) - killed)
                missing = _missing(primary, logs)
                lost += len(missing)
                print(
                    f"kill {kill}: commits go on after {pauses[-1]:.2f} s,"
                    f" {_count(logs)} acknowledged, {lost} lost {missing[:3]}",
                    flush=True,
                )
                standby.follow(primary, replace=True)
                until(standby.is_synchronous, 120)
                for old in standby.home.path.glob("replaced-*"):
                    old.unlink()
        finally:
            stop.touch()
            for process in writers:
                process.join(60)
            for member in (primary, standby):
                member.kill()
        print(
            f"{times} kills, {_count(logs)} commits acknowledged, {lost} lost; commits went on"
            f" after {statistics.median(pauses):.2f} s (median), {max(pauses):.2f} s (longest)"
        )
        if results is not None:
            _save(results, times, tls, _count(logs), lost, pauses)
    return 1 if lost else 0


def _save(
    file: Path, times: int, tls: bool, acknowledged: int, lost: int, pauses: list[float]
) -> None:
    found = json.loads(file.read_text()) if file.exists() else {"machine": machine(), "runs": []}
    found["runs"].append(
        {
            "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "tls": tls,
            "writers": WRITERS,
            "kills": times,
            "commits_acknowledged": acknowledged,
            "lost": lost,
            "seconds_until_commits_go_on": [round(pause, 2) for pause in pauses],
        }
    )
    save(file, found)


def _lines(logs: list[Path]) -> list[list[object]]:
    whole = (line for log in logs for line in log.read_text().splitlines(keepends=True))
    return [json.loads(line) for line in whole if line.endswith("\n")]


def _count(logs: list[Path]) -> int:
    return len(_lines(logs))


def _first_after(logs: list[Path], moment: float) -> float | None:
    """When the first commit was acknowledged after the kill at this moment.

    What the primary acknowledged just before it died is left out: a standby takes longer.
    """
    ends = [float(str(at)) for _, _, at, took in _lines(logs) if float(str(at)) > moment + 0.5]
    return min(ends, default=None)


def _missing(primary: Member, logs: list[Path]) -> list[object]:
    acknowledged = _lines(logs)
    with primary.local() as client:
        present = set(client.databases())
        ended = {
            txn: client.outcome(int(str(txn)))["state"] for _, txn, _, _ in acknowledged[-200:]
        }
    return [name for name, txn, _, _ in acknowledged if name not in present] + [
        txn for txn, state in ended.items() if state != "c"
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=int, nargs="?", default=50)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    raise SystemExit(main(chosen.times, chosen.tls, chosen.results))
