"""Metastores for tests, forked from a process that has imported what they need.

Most tests have a metastore of their own, and the imports of a new process take most of the CPU time
that it needs. `python -m acid_platform.metastore` itself is started by tests/metastore and others.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from acid_platform.metastore.client import target

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__, "acid_platform.metastore.server.server"])


@contextmanager
def forked_metastores() -> Iterator[None]:
    """Within the block this process starts its metastores by a fork."""
    replaced = {**vars(subprocess), "run": _run}
    with patch.object(target, "subprocess", SimpleNamespace(**replaced)):
        yield


def _run(
    command: Sequence[str],
    *,
    stdout: Any,
    cwd: str,
    env: Mapping[str, str],
    timeout: float,
    **_: Any,
) -> None:
    """As `subprocess.run` for `python -m acid_platform.metastore …`. Raises TimeoutExpired."""
    words = command[command.index("acid_platform.metastore") + 1 :]
    with tempfile.NamedTemporaryFile("r") as said:
        forked = _FORKS.Process(target=_serve, args=(words, cwd, dict(env), said.name))
        forked.start()
        forked.join(timeout)
        if forked.exitcode is None:
            forked.kill()
            raise subprocess.TimeoutExpired(command, timeout)
        stdout.write(said.read())


def _serve(words: Sequence[str], cwd: str, variables: dict[str, str], said: str) -> None:
    from acid_platform.metastore.__main__ import main

    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    sys.argv[1:] = words
    with open(said, "w") as sys.stdout:
        main()
