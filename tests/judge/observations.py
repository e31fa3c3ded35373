"""What each transaction read of others and wrote, and what follows without any graph.

The words are those of Adya (*Weak Consistency: A Generalized Theory*, 1999: G1a, G1b) and of
Kingsbury and Alvaro (*Elle*, 2020: internal, garbage, duplicate, incompatible order).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.judge.recorded import WRITES, Attempt, MalformedHistory, Step, Version


@dataclass(frozen=True, slots=True)
class Anomaly:
    name: str
    transactions: tuple[int, ...]
    """Their places in the history, from 0."""
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(slots=True)
class Footprint:
    """What one transaction shows to others and saw of them."""

    reads: dict[str, Version] = field(default_factory=dict)
    """By key the version before its own writes."""
    writes: dict[str, list[int]] = field(default_factory=dict)
    """By key its values, in its order."""
    versions: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Lists as it read them, with its own elements."""
    faults: list[str] = field(default_factory=list)
    """Reads that contradict its own steps."""


def footprint(attempt: Attempt) -> Footprint:
    mark = Footprint()
    all_own: dict[str, set[int]] = defaultdict(set)
    for step in attempt.steps:
        if step.writes:
            all_own[step.key].add(step.value)
    for step in attempt.steps:
        own = mark.writes.get(step.key, [])
        if step.writes:
            mark.writes.setdefault(step.key, []).append(step.value)
            continue
        if step.do == "list":
            mark.versions.append((step.key, step.value))
        if step.do == "register" and own:
            if step.value != own[-1]:
                mark.faults.append(f"{step} after it wrote {own[-1]}")
            continue
        before = _before(step, own, all_own[step.key])
        if before is _CONTRADICTS:
            mark.faults.append(f"{step} after it wrote {own or 'nothing'}")
        elif mark.reads.setdefault(step.key, before) != before:
            mark.faults.append(f"{step} after it had read {mark.reads[step.key]}")
    return mark


_CONTRADICTS = (object(),)


def _before(step: Step, own: list[int], all_own: set[int]) -> Version:
    """The version without the transaction's own writes, or _CONTRADICTS."""
    if step.do == "list":
        others = len(step.value) - len(own)
        right = step.value[others:] == tuple(own) and not all_own & set(step.value[:others])
        return step.value[:others] if others >= 0 and right else _CONTRADICTS  # type: ignore[return-value]
    if step.do == "set":
        right = step.value & all_own == set(own)
        return step.value - all_own if right else _CONTRADICTS  # type: ignore[return-value]
    return step.value  # type: ignore[no-any-return]


class Observations:
    """The history with who wrote what, who committed, and the order of each list.

    A transaction whose outcome nobody was told counts as committed if another one read what it
    wrote. Others of that kind, and aborted ones, count as readers alone: a snapshot is promised to
    them as well.
    """

    def __init__(self, history: Sequence[Attempt]) -> None:
        self.history = history
        self.marks = [footprint(attempt) for attempt in history]
        self.kinds: dict[str, str] = {}
        self.writer: dict[tuple[str, int], int] = {}
        """Of each value of a key the transaction, by its place."""
        self._look_at_steps()
        observed = {
            self.writer[key, value]
            for place, mark in enumerate(self.marks)
            for key, version in mark.reads.items()
            for value in elements(version)
            if self.writer.get((key, value), place) != place
        }
        self.committed = [
            attempt.outcome == "ok" or (attempt.outcome == "info" and place in observed)
            for place, attempt in enumerate(history)
        ]
        self.readers: dict[str, list[int]] = defaultdict(list)
        self.writers: dict[str, list[int]] = defaultdict(list)
        """By key the committed writers."""
        for place, mark in enumerate(self.marks):
            for key in mark.reads:
                self.readers[key].append(place)
            for key in mark.writes:
                if self.committed[place]:
                    self.writers[key].append(place)
        self.anomalies: list[Anomaly] = []
        self.orders: dict[str, tuple[int, ...]] = {}
        """The elements of each list in the order of the longest version that anybody read."""
        for key, versions in self._list_versions().items():
            self.orders[key] = self._order(key, versions)
        for place in range(len(history)):
            self.anomalies += self._direct(place)
        for key in self.writers:
            self.anomalies += self._lost_updates(key)

    def name(self, place: int) -> str:
        return f"T{place + 1} ({self.history[place].process})"

    def _look_at_steps(self) -> None:
        for place, attempt in enumerate(self.history):
            for step in attempt.steps:
                kind = WRITES.get(step.do, step.do)
                if self.kinds.setdefault(step.key, kind) != kind:
                    raise MalformedHistory(f"{step.key} is a {self.kinds[step.key]} and a {kind}")
                if step.writes and (step.key, step.value) in self.writer:
                    raise MalformedHistory(f"{step.value} is written to {step.key} twice")
                if step.writes:
                    self.writer[step.key, step.value] = place

    def _list_versions(self) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
        """By list the versions that were read, with their readers."""
        versions: dict[str, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        for place, mark in enumerate(self.marks):
            for key, version in mark.versions if self.committed[place] else mark.reads.items():
                if isinstance(version, tuple):
                    versions[key].append((place, version))
        return versions

    def _order(self, key: str, versions: list[tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
        """The order of a list; notes two reads of which none is the beginning of the other."""
        order: tuple[int, ...] = ()
        last = -1
        for place, version in sorted(versions, key=lambda one: (len(one[1]), one[0])):
            if order != version[: len(order)]:
                self.anomalies.append(
                    Anomaly(
                        "incompatible order",
                        (last, place),
                        f"{self.name(last)} read {list(order)} in {key}, {self.name(place)} read"
                        f" {list(version)}",
                    )
                )
            elif len(version) > len(order):
                order, last = version, place
        for writer in {self.writer[key, value] for value in order if (key, value) in self.writer}:
            writes = self.marks[writer].writes[key]
            in_order = [value for value in order if value in writes]
            if in_order != [value for value in writes if value in order]:
                self.anomalies.append(
                    Anomaly(
                        "incompatible order",
                        (writer, last),
                        f"{self.name(writer)} appended {writes} to {key}, {self.name(last)} read"
                        f" {in_order}",
                    )
                )
        return order

    def _direct(self, place: int) -> Iterator[Anomaly]:
        mark, me = self.marks[place], self.name(place)
        for fault in mark.faults:
            yield Anomaly("internal", (place,), f"{me} read: {fault}")
        for key, version in mark.reads.items():
            values = elements(version)
            if len(values) != len(set(values)):
                yield Anomaly("duplicate element", (place,), f"{me} read {values} in {key}")
            for value in dict.fromkeys(values):
                writer = self.writer.get((key, value))
                if writer is None:
                    yield Anomaly(
                        "garbage read",
                        (place,),
                        f"{me} read {value} in {key}, which nobody wrote",
                    )
                elif self.history[writer].outcome == "fail" and writer != place:
                    yield Anomaly(
                        "G1a",
                        (writer, place),
                        f"{me} read {value} in {key} from {self.name(writer)}, which was aborted",
                    )
            yield from self._intermediate(place, key, version)

    def _intermediate(self, place: int, key: str, version: Version) -> Iterator[Anomaly]:
        """A version between two writes of one transaction (G1b)."""
        values = elements(version)
        if isinstance(version, frozenset):
            writers = {self.writer.get((key, value), place) for value in values}
        else:
            writers = {self.writer.get((key, value), place) for value in values[-1:]}
        for writer in sorted(writers - {place}):
            writes = self.marks[writer].writes[key]
            late = (
                [value for value in writes if value not in version]
                if isinstance(version, frozenset)
                else writes[writes.index(values[-1]) + 1 :]
            )
            if late:
                yield Anomaly(
                    "G1b",
                    (writer, place),
                    f"{self.name(place)} read {values} in {key}, without {late} of the same"
                    f" {self.name(writer)}",
                )

    def _lost_updates(self, key: str) -> Iterator[Anomaly]:
        """Two that read the same version of a list or register, and both wrote it (P4)."""
        if self.kinds[key] == "set":  # adding overwrites nothing
            return
        changed: dict[Version, int] = {}
        for place in self.writers[key]:
            if key not in self.marks[place].reads:
                continue
            version = self.marks[place].reads[key]
            first = changed.setdefault(version, place)
            if first != place:
                yield Anomaly(
                    "lost update",
                    (first, place),
                    f"{self.name(first)} and {self.name(place)} read {elements(version)} in {key},"
                    f" wrote {self.marks[first].writes[key]} and {self.marks[place].writes[key]},"
                    " and both were committed",
                )


def elements(version: Version) -> list[int]:
    """The values of a version; that of a register is one, or none."""
    if isinstance(version, tuple):
        return list(version)
    if isinstance(version, frozenset):
        return sorted(version)
    return [] if version is None else [version]
