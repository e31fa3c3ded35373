"""What actors intended, were told and read: JSON lines, one file for each process.

Each line is one write, so a killed process leaves whole lines and at most one partial line.
Times are `time.monotonic()`, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def now() -> float:
    return round(time.monotonic(), 4)


class Journal:
    """The file of one process."""

    def __init__(self, directory: Path, name: str) -> None:
        self._file = os.open(
            directory / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )

    def tell(self, what: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"what": what, "at": now(), **fields}) + "\n").encode())


class Tail:
    """Follows all journals of a directory: each call returns the lines since the last call."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[str, int] = {}

    def lines(self) -> Iterator[Line]:
        for path in sorted(self._directory.glob("*.jsonl")):
            offset = self._read.get(path.name, 0)
            if path.stat().st_size == offset:
                continue
            with path.open("rb") as file:
                file.seek(offset)
                found = file.read()
            whole = found[: found.rfind(b"\n") + 1]
            self._read[path.name] = offset + len(whole)
            for number, line in enumerate(whole.splitlines()):
                yield {**json.loads(line), "actor": path.stem, "order": (offset, number)}
