"""A PostgreSQL for tests, started from binaries in PATH or below /usr/lib/postgresql."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.metastore.processes import free_port


def binary(name: str) -> str | None:
    """The path of a program; None if it is not installed."""
    below = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3])
    )
    return shutil.which(name) or (str(below[-1]) if below else None)


def missing() -> str:
    """Why PostgreSQL can't run here; empty if it can."""
    for name in ("initdb", "pg_ctl", "postgres"):
        if binary(name) is None:
            return f"{name} is not in PATH nor below /usr/lib/postgresql"
    if os.getuid() == 0 and _account() is None:
        return "postgres refuses to run as root, and there is no user postgres"
    return ""


def _account() -> pwd.struct_passwd | None:
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return None


class PostgresServer:
    """Listens on a port of 127.0.0.1; any user may connect. Settings are the default ones."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="acid-postgres-"))
        who = _account() if os.getuid() == 0 else None
        self._user: dict[str, Any] = {}
        if who is not None:
            os.chown(self._directory, who.pw_uid, who.pw_gid)
            self._user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        self._data = self._directory / "data"
        self.port = free_port()
        self._run("initdb", "-D", self._data, "-U", "acid", "-A", "trust", "-E", "UTF8", "-N")

    def url(self, database: str = "postgres", port: int | None = None, **parameters: str) -> str:
        words = "&".join(f"{name}={value}" for name, value in parameters.items())
        where = f"postgresql://acid@127.0.0.1:{port or self.port}/{database}"
        return f"{where}?{words}" if words else where

    def socket_url(self) -> str:
        """By the Unix socket."""
        return f"postgresql://acid@/postgres?host={self._directory}&port={self.port}"

    def start(self) -> None:
        options = f"-p {self.port} -k {self._directory} -c listen_addresses=127.0.0.1"
        log = self._directory / "log"
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is a crash: nothing is written before the end."""
        self._run("pg_ctl", "stop", "-w", "-D", self._data, "-m", mode)

    def process(self) -> int:
        """The id of the first process."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def close(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self._directory)

    def _run(self, program: str, *words: object) -> None:
        path = binary(program)
        assert path is not None
        subprocess.run(
            [path, *map(str, words)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=60,
            **self._user,
        )
