"""`make test-stores`: the tests of warehouses in S3 on real servers, which Go builds once.

    python -m tests.stores.real [minio] [versitygw] [-- words for pytest]

A server that can't be built, as without Go or its module proxy, is skipped, and a message says why.
For a server that runs already: ACID_TEST_S3=http://KEY:SECRET@HOST:PORT pytest tests/stores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "s3"
KEY, SECRET = "acid", "acid-secret"
MODULES = {
    "minio": "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
}
_SECONDS = 60


class Unavailable(Exception):
    """A server can't be built or started; the text says why."""


def built(name: str) -> Path:
    """The program of a server. Raises Unavailable."""
    if name not in MODULES:
        raise Unavailable(f"choose among {', '.join(MODULES)}")
    program = BUILT / MODULES[name].partition("@")[0].rpartition("/")[2]
    if program.exists():
        return program
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise Unavailable("there is no Go: install it (https://go.dev/dl)")
    print(f"building {MODULES[name]}, which takes minutes", flush=True)
    done = subprocess.run(
        ["nice", "-n", "19", go, "install", "-p", "1", MODULES[name]],
        env={**os.environ, "GOBIN": str(BUILT), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Unavailable(f"{MODULES[name]} can't be built: {done.stderr[-1000:]}")
    return program


def command(name: str, program: Path, home: Path, port: int) -> list[str]:
    """What starts a server of one node that keeps its objects below `home`."""
    objects, where = home / "objects", f"127.0.0.1:{port}"
    objects.mkdir()
    if name == "minio":
        return [str(program), "server", str(objects), "--address", where, "--quiet"]
    keys = ["--access", KEY, "--secret", SECRET, "--port", where]
    return [str(program), *keys, "posix", str(objects)]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(name: str) -> Iterator[str]:
    """A server, and what ACID_TEST_S3 names it. Raises Unavailable."""
    program, port = built(name), free_port()
    with tempfile.TemporaryDirectory(prefix=f"acid-{name}-") as made:
        home = Path(made)
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                command(name, program, home, port),
                env={**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET},
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


def main(words: Sequence[str]) -> int:
    """Answers 1 if a test failed."""
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="python -m tests.stores.real", description=__doc__)
    parser.add_argument("servers", nargs="*", default=list(MODULES), help=", ".join(MODULES))
    worst = 0
    for name in parser.parse_args(words[:at]).servers:
        try:
            with running(name) as named:
                print(f"{name}: {named.rpartition('@')[2]}", flush=True)
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "tests/stores", *words[at + 1 :]],
                    cwd=ROOT,
                    env={**os.environ, "ACID_TEST_S3": named},
                )
                worst = max(worst, done.returncode)
        except Unavailable as why:
            print(f"{name} was skipped: {why}", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
