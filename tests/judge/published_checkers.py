"""The verdicts of published checkers on the same history, where somebody has them.

Elle (Kingsbury and Alvaro; `elle-cli`, a jar) takes lists and registers apart. dbcop (Biswas and
Enea, *On the Complexity of Checking Transactional Consistency*, 2019) takes registers. A set
becomes a register for each element, which is written once; to dbcop a list is a register whose
value is its last element. Neither is needed: they are asked for by `--elle` and `--dbcop`.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.judge.observations import Observations
from tests.judge.observations import elements as elements_of
from tests.judge.recorded import Attempt, Step

_ELLE = {"list-append": ("append", "list"), "rw-register": ("add", "set", "write", "register")}
"""Elle's models with the steps that each takes."""


def ask_elle(jar: Path, history: Sequence[Attempt], level: str, scratch: Path) -> dict[str, str]:
    """What elle-cli answers for each model that the history has: its lines."""
    answers = {}
    for model in _ELLE:
        path = scratch / f"{model}.edn"
        lines = list(edn(history, model))
        path.write_text("\n".join(lines) + "\n")
        if lines:
            command = ["java", "-jar", str(jar), "--model", model]
            answers[model] = _output([*command, "--consistency-models", level, str(path)])
    return answers


def ask_dbcop(program: Path, history: Sequence[Attempt], level: str, scratch: Path) -> str:
    """What dbcop answers."""
    scratch.mkdir(exist_ok=True)
    (scratch / "history.json").write_text(json.dumps(sessions(history)))
    command = [str(program), "verify", "--input-dir", str(scratch), "--consistency", level]
    return _output(command)


def _output(command: list[str]) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return (ended.stdout + ended.stderr).strip()


def edn(history: Sequence[Attempt], model: str) -> Iterator[str]:
    """The operations of a history for Elle, by time."""
    elements = _elements(history)
    events: list[tuple[int, int, int, str, str]] = []
    last = max((attempt.ended or attempt.began for attempt in history), default=0) + 1
    for place, attempt in enumerate(history):
        steps = [step for step in attempt.steps if step.do in _ELLE[model]]
        if steps:
            asked = " ".join(_edn(steps, elements, answered=False))
            answered = " ".join(_edn(steps, elements, answered=attempt.outcome != "info"))
            events.append((attempt.began, 0, place, "invoke", asked))
            ended = attempt.ended if attempt.outcome != "info" else None
            events.append((ended or last, 1, place, attempt.outcome, answered))
    processes: dict[str, int] = {}
    numbers: dict[int, int] = {}
    free = 0
    # A process whose operation has no known end is a new one afterwards.
    for index, (at, _, place, kind, value) in enumerate(sorted(events)):
        if kind == "invoke":
            process = history[place].process
            if process not in processes:
                processes[process], free = free, free + 1
            numbers[place] = processes[process]
            if history[place].outcome == "info":
                del processes[process]
        yield (
            f"{{:index {index}, :time {at}, :type :{kind}, :process {numbers[place]}, :f :txn,"
            f" :value [{value}]}}"
        )


def _elements(history: Iterable[Attempt]) -> dict[str, list[int]]:
    """What was added to each set."""
    elements: dict[str, list[int]] = defaultdict(list)
    for attempt in history:
        for step in attempt.steps:
            if step.do == "add":
                elements[step.key].append(step.value)
    return elements


def _edn(steps: Iterable[Step], elements: dict[str, list[int]], answered: bool) -> Iterator[str]:
    for step in steps:
        key = json.dumps(step.key)
        if step.do == "append":
            yield f"[:append {key} {step.value}]"
        elif step.do == "write":
            yield f"[:w {key} {step.value}]"
        elif step.do == "add":
            yield f'[:w "{step.key}/{step.value}" 1]'
        elif step.do == "list":
            listed = f"[{' '.join(map(str, step.value))}]" if answered else "nil"
            yield f"[:r {key} {listed}]"
        elif step.do == "register":
            value = "nil" if step.value is None or not answered else step.value
            yield f"[:r {key} {value}]"
        else:
            for element in elements[step.key]:
                value = "1" if answered and element in step.value else "nil"
                yield f'[:r "{step.key}/{element}" {value}]'


def sessions(history: Sequence[Attempt]) -> dict[str, object]:
    """The history for dbcop: the committed transactions of each process, in order.

    It takes one read of a key, of what others wrote, and one write.
    """
    facts, elements = Observations(history), _elements(history)
    variables: dict[str, int] = {}
    versions: dict[tuple[str, int], int] = {}

    def write(key: str, value: int) -> dict[str, object]:
        return {"Write": {"variable": variable(key), "version": version(key, value)}}

    def read(key: str, value: int | None) -> dict[str, object]:
        given = None if value is None else version(key, value)
        return {"Read": {"variable": variable(key), "version": given}}

    def variable(key: str) -> int:
        return variables.setdefault(key, len(variables))

    def version(key: str, value: int) -> int:
        return versions.setdefault((key, value), len(versions) + 1)

    by_process: dict[str, list[dict[str, object]]] = defaultdict(list)
    for place, attempt in enumerate(history):
        if not facts.committed[place]:
            continue
        mark = facts.marks[place]
        events = []
        for key, version_read in mark.reads.items():
            if isinstance(version_read, frozenset):
                events += [
                    read(f"{key}/{element}", element if element in version_read else None)
                    for element in elements[key]
                ]
            else:
                last = elements_of(version_read)[-1:]
                events.append(read(key, last[0] if last else None))
        for key, values in mark.writes.items():
            if facts.kinds[key] == "set":
                events += [write(f"{key}/{value}", value) for value in values]
            else:
                events.append(write(key, values[-1]))
        by_process[attempt.process].append({"events": events, "committed": True})
    counted = {
        "id": 0,
        "n_node": len(by_process),
        "n_variable": len(variables),
        "n_transaction": max(map(len, by_process.values()), default=0),
        "n_event": 0,
    }
    data = list(by_process.values())
    when = "2026-01-01T00:00:00.000000000+00:00"
    return {"params": counted, "info": "recorded", "start": when, "end": when, "data": data}
