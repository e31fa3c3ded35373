"""One door under atheris, in a process that its limits may end; see __main__."""

from __future__ import annotations

import atexit
import hashlib
import logging
import sys
import time
import traceback
from pathlib import Path

import atheris  # type: ignore[import-not-found,unused-ignore]

with atheris.instrument_imports(include=["acid_platform"]):
    from tests.fuzz.doors import DOORS, leave

ROOT = Path(__file__).parents[2]
_TELLS_SECONDS = 5.0


def place_of(error: BaseException) -> str:
    """The class of an exception, and the last line of this repository that it came through."""
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{ROOT}/acid_platform")
    ]
    last = ours[-1] if ours else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}, {last.name}, line {last.lineno}"


class _Watched:
    def __init__(self, door: str, found: Path) -> None:
        self._door, self._found = DOORS[door], found
        self._inputs = 0
        self._told = time.monotonic()
        self._kinds: dict[str, int] = {}

    def __call__(self, data: bytes) -> None:
        self._inputs += 1
        if time.monotonic() - self._told > _TELLS_SECONDS:
            self.tell()
        try:
            self._door.enter(data)
        except self._door.refused:
            pass
        except Exception as error:
            self._keep(place_of(error), data, error)

    def tell(self) -> None:
        self._told = time.monotonic()
        print(f"counted {self._inputs}", flush=True)

    def _keep(self, kind: str, data: bytes, error: Exception) -> None:
        name = hashlib.sha256(kind.encode()).hexdigest()[:12]
        known = self._found / f"{name}.kind"
        if kind not in self._kinds:
            before = known.read_text().rpartition(" ")[2] if known.exists() else "0"
            self._kinds[kind] = int(before)
        self._kinds[kind] += 1
        smallest = self._found / f"{name}.input"
        if not smallest.exists() or len(data) < smallest.stat().st_size:
            smallest.write_bytes(data)
            told = "".join(traceback.format_exception(error))
            (self._found / f"{name}.trace").write_text(told[-6000:])
        known.write_text(f"{kind} {self._kinds[kind]}")


def main() -> None:
    logging.disable(logging.INFO)
    door, found = sys.argv[1:3]
    watched = _Watched(door, Path(found))
    atexit.register(leave)
    atexit.register(watched.tell)
    atheris.Setup([sys.argv[0], *sys.argv[3:]], watched)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
