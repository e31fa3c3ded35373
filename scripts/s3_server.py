"""`make lab-object-store`: an S3 server on this machine for trials, which keeps objects in memory.

It is that of moto: it needs no account, takes any credentials, and forgets everything at its end.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
BUCKET = "acid"
_UP = "listening on "


def variables(url: str) -> dict[str, str]:
    """The environment with which every tool of AWS uses the server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "trial",
        "AWS_SECRET_ACCESS_KEY": "trial",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def running(port: int = 0) -> Iterator[str]:
    """A server in a process of its own, with the bucket BUCKET; its address. Port 0: any.

    Raises RuntimeError if it does not start.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.s3_server", "--serve", "--port", str(port)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout.readline().strip()
        if not said.startswith(_UP):
            raise RuntimeError(f"the S3 server did not start on port {port}")
        url = said.removeprefix(_UP)
        try:
            with urlopen(Request(f"{url}/{BUCKET}", b"", method="PUT"), timeout=20):
                yield url
        finally:
            process.stdin.close()


def serve(port: int) -> None:
    """Serves until standard input ends."""
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = make_server("127.0.0.1", port, create_backend_app("s3"), threaded=True)
    print(f"{_UP}http://127.0.0.1:{serving.server_port}", flush=True)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until it is interrupted; answers 1 if the server does not start."""
    parser = argparse.ArgumentParser(prog="python -m scripts.s3_server", description=__doc__)
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.port)
    try:
        with running(options.port) as url:
            print(f"an S3 server with the bucket {BUCKET}; Ctrl-C ends it, and all objects with it")
            for name, value in variables(url).items():
                print(f"export {name}={value}", flush=True)
            signal.pause()
    except RuntimeError as error:
        print(f"object-store: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
