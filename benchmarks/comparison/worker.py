"""A process of contenders: reads commands as lines of JSON, and answers with seconds and rows."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.comparison.contender import Contender


def serve(contenders: dict[str, Contender]) -> None:
    """Answers each command with one line; an exception becomes the text `error`."""
    sources: dict[tuple[str, str], Any] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if command["call"] == "end":
            break
        try:
            answer = _answer(contenders[command["contender"]], sources, command)
        except Exception as error:  # the report names it, and the other contenders go on
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        print("answer " + json.dumps(answer, default=str), flush=True)
    for contender in contenders.values():
        contender.close()


def _answer(
    contender: Contender, sources: dict[tuple[str, str], Any], command: dict[str, Any]
) -> dict[str, Any]:
    call, table = command["call"], command.get("table", "")
    given: list[Any] = []
    if "source" in command:
        key = (command["contender"], command["source"])
        if key not in sources:
            sources[key] = contender.source(command["source"])
        given = [sources[key]]
    if call == "versions":
        return {"versions": contender.versions(), "settings": contender.settings()}
    if call == "size":
        return {"bytes": contender.size(table)}
    if call == "query":
        given = [command["text"]]
    if call == "change":
        given = [command["phase"]]
    began = time.perf_counter()
    row = getattr(contender, call)(table, *given)
    seconds = time.perf_counter() - began
    if row is None:
        return {"seconds": seconds}
    from benchmarks.comparison.texts import canonical

    return {"seconds": seconds, "row": canonical(row)}


def contenders_of(module: str, names: str, home: Path, data: Path) -> dict[str, Contender]:
    """The named contenders; what follows `@` in a name tells equal ones apart."""
    known = importlib.import_module(module).CONTENDERS
    return {name: known[name.partition("@")[0]](home / name, data) for name in names.split(",")}


def main() -> None:
    module, names, home, data = sys.argv[1:]
    serve(contenders_of(module, names, Path(home), Path(data)))


if __name__ == "__main__":
    main()
