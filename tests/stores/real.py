"""`make lab-test-stores`: the tests of warehouses in object stores on servers fetched once.

    python -m tests.stores.real [minio] [versitygw] [fake-gcs-server] [azurite] [-- pytest's words]

Go builds real servers of S3 and an emulator of Google Cloud Storage; npm installs one of Azure Blob
Storage. What can't be fetched, as without Go or npm or their registries, is skipped, and a message
says why. For a server of S3 that runs already: ACID_TEST_S3=http://KEY:SECRET@HOST:PORT pytest
tests/stores.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.metastore.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "stores"
KEY, SECRET = "acid", "acid-secret"
ACCOUNT, ACCOUNT_KEY = "acidtests", base64.b64encode(b"a key for tests of the platform").decode()
"""Of Azure."""
MODULES = {
    "minio": "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    "fake-gcs-server": "github.com/fsouza/fake-gcs-server@v1.56.1",
}
"""What Go builds."""
PACKAGES = {"azurite": "azurite@3.35.0"}
"""What npm installs; later versions need a newer Node.js than 20."""
STORES = {"fake-gcs-server": "google", "azurite": "azure"}
"""Whose tests have this word in their names; those of the other servers are S3's."""
_SECONDS = 60


class Unavailable(Exception):
    """A server can't be built or started; the text says why."""


def program(name: str) -> Path:
    """Where the program of a server is, or will be. Raises Unavailable for an unknown name."""
    if name in PACKAGES:
        return BUILT / name / "node_modules" / ".bin" / "azurite-blob"
    if name not in MODULES:
        raise Unavailable(f"choose among {', '.join([*MODULES, *PACKAGES])}")
    return BUILT / MODULES[name].partition("@")[0].rpartition("/")[2]


def build(name: str) -> None:
    """Fetches the server, unless it is there. Raises Unavailable."""
    if program(name).exists():
        return
    if name in PACKAGES:
        command, what = _npm(name), PACKAGES[name]
    else:
        command, what = _go(name), MODULES[name]
    print(f"fetching {what}, which takes minutes", flush=True)
    done = subprocess.run(
        ["nice", "-n", "19", *command],
        env={**os.environ, "GOBIN": str(BUILT), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Unavailable(f"{what} can't be fetched: {done.stderr[-1000:]}")


def _go(name: str) -> list[str]:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise Unavailable("there is no Go: install it (https://go.dev/dl)")
    return [go, "install", "-p", "1", MODULES[name]]


def _npm(name: str) -> list[str]:
    if shutil.which("npm") is None:
        raise Unavailable("there is no npm: install Node.js (https://nodejs.org)")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund"]
    return ["npm", "install", "--prefix", str(BUILT / name), *quiet, PACKAGES[name]]


def command(name: str, home: Path, port: int) -> list[str]:
    """What starts a server of one node that keeps its objects below `home`, or in memory."""
    objects, where, started = home / "objects", f"127.0.0.1:{port}", str(program(name))
    objects.mkdir()
    if name == "minio":
        return [started, "server", str(objects), "--address", where, "--quiet"]
    if name == "fake-gcs-server":
        place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
        return [started, *place, "-backend", "memory", "-log-level", "error"]
    if name == "azurite":
        place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
        return [started, *place, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    keys = ["--access", KEY, "--secret", SECRET, "--port", where]
    return [started, *keys, "posix", str(objects)]


@contextmanager
def running(name: str, fetch: bool = True) -> Iterator[str]:
    """A server, and what ACID_TEST_S3 names it. Raises Unavailable, also if it would have to be
    fetched first."""
    if fetch:
        build(name)
    elif not program(name).exists():
        raise Unavailable(f'{name} is not there: `make lab-test-stores ARGS="{name}"` fetches it')
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"acid-{name}-") as made:
        home = Path(made)
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                command(name, home, port),
                env={
                    **os.environ,
                    "MINIO_ROOT_USER": KEY,
                    "MINIO_ROOT_PASSWORD": SECRET,
                    "AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}",
                },
                stdout=log,
                stderr=log,
                cwd=home,
            )
        try:
            _wait_for(process, port, home / "log")
            yield f"http://{KEY}:{SECRET}@127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                text = log.read_text(errors="replace")[-1000:]
                raise Unavailable(f"it does not start: {text}") from None
            time.sleep(0.2)
    time.sleep(1)  # until its parts are ready


def tested(name: str, words: Sequence[str]) -> int:
    """Runs the tests on a server: those of S3 on one that runs beside them; those of another store
    start its emulator, and are also those of logs there. Raises Unavailable."""
    with ExitStack() as stack:
        if name in STORES:
            build(name)
            where, given = ["tests/stores", "tests/log", "-k", STORES[name]], {}
        else:
            given = {"ACID_TEST_S3": stack.enter_context(running(name))}
            others = " or ".join(STORES.values())
            where = ["tests/stores", "-k", f"not ({others})"]
        print(f"{name}: {' '.join(where)}", flush=True)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *where, *words],
            cwd=ROOT,
            env={**os.environ, **given},
        ).returncode


def main(words: Sequence[str]) -> int:
    """Answers 1 if a test failed."""
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="python -m tests.stores.real", description=__doc__)
    names = [*MODULES, *PACKAGES]
    parser.add_argument("servers", nargs="*", default=names, help=", ".join(names))
    worst = 0
    for name in parser.parse_args(words[:at]).servers:
        try:
            worst = max(worst, tested(name, words[at + 1 :]))
        except Unavailable as why:
            print(f"{name} was skipped: {why}", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
