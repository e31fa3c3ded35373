"""Starting a metastore process that outlives its starter."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

from acid_platform.base.local_files import scratch_file
from acid_platform.errors import MetastoreInUse, MetastoreUnavailable, error_class
from acid_platform.metastore.endpoint import Home, absolute_files

START_SECONDS = 30.0
"""How long to wait for a metastore that is starting or restarting."""


def start(
    home: Home,
    listen: str | None = None,
    *,
    without_tls: bool = False,
    metrics: str = "",
    alone: bool = True,
) -> bool:
    """Starts a metastore process; returns False if another process was faster, which is fine.

    If many clients find no metastore, only one starts it (`alone`): with one process per client the
    machine would be too busy to start any. `listen` (`host:port`), `without_tls` and `metrics`
    are those of `acid metastore start`. Raises InvalidDefinition, and MetastoreIncompatible or
    MetastoreUnavailable if it can't serve the directory.
    """
    home.prepare()
    with open(os.open(home.starting, os.O_RDWR | os.O_CREAT, 0o600), "r+") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if alone:
                return False
        try:
            return _start(home, listen, without_tls, metrics)
        finally:
            # Unlocked explicitly: a child that is forked in the meantime has a copy of the file.
            fcntl.flock(turn, fcntl.LOCK_UN)


def environment() -> dict[str, str]:
    """That of a process of this program whose current directory is another one."""
    root = Path(__file__).resolve().parents[3]
    paths = [str(root), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, **absolute_files(os.environ), "PYTHONPATH": os.pathsep.join(paths)}


def _start(home: Home, listen: str | None, without_tls: bool, metrics: str) -> bool:
    # -P: a file duckdb.py in the current directory must not be imported as DuckDB.
    command = [sys.executable, "-P", "-m", "acid_platform.metastore"]
    command += ["--dir", str(home.path), "--detach"]
    command += ["--listen", listen] if listen else []
    command += ["--without-tls"] if without_tls else []
    command += ["--metrics", metrics] if metrics else []
    # Files, not pipes: a pipe ends only once every copy of it is closed, and processes that other
    # threads fork in the meantime may keep a copy for ever.
    with scratch_file() as out, scratch_file() as err:
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd="/",
                env=environment(),
                timeout=START_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise MetastoreUnavailable(
                f"a metastore for {home.path} did not start in {START_SECONDS:.0f} s;"
                f" see {home.log}"
            ) from error
        out.seek(0)
        err.seek(0)
        result, complaint = out.read(), err.read().strip()
    try:
        answer = json.loads(result)
    except ValueError as error:
        raise MetastoreUnavailable(
            f"a metastore for {home.path} did not start: {complaint}; see {home.log}"
        ) from error
    if "error" not in answer:
        return True
    name, text = answer["error"]
    if name == MetastoreInUse.__name__:
        return False
    raise error_class(name)(f"a metastore for {home.path} did not start: {text}")
