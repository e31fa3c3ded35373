"""Which anomalies a history has, and which isolation levels those leave.

Names are Adya's and Elle's. A cycle that needs the clock ends with `-realtime`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.judge.cycles import Cycle, by_moments, by_transactions, cycles
from tests.judge.dependencies import dependencies
from tests.judge.observations import Anomaly, Observations
from tests.judge.recorded import Attempt

_MALFORMED = {"garbage read", "duplicate element", "incompatible order"}
_UNCOMMITTED = _MALFORMED | {"G0"}
_COMMITTED = _UNCOMMITTED | {"G1a", "G1b", "G1c"}
_ATOMIC = _COMMITTED | {"internal", "fractured read"}
_SNAPSHOT = _ATOMIC | {"G-single", "lost update", "G-nonadjacent", "long fork"}
_SERIALIZABLE = _SNAPSHOT | {"G2", "write skew"}


def _timed(names: set[str]) -> set[str]:
    return names | {f"{name}-realtime" for name in names}


LEVELS: dict[str, frozenset[str]] = {
    "read uncommitted": frozenset(_UNCOMMITTED),
    "read committed": frozenset(_COMMITTED),
    "read atomic": frozenset(_ATOMIC),
    "snapshot isolation": frozenset(_SNAPSHOT),
    "strong snapshot isolation": frozenset(_timed(_SNAPSHOT)),
    "serializable": frozenset(_SERIALIZABLE),
    "strict serializable": frozenset(_timed(_SERIALIZABLE)),
}
"""Each level with the anomalies that it excludes."""
PROMISED = "strong snapshot isolation"
"""What the platform promises: each transaction, the aborted ones too, reads one snapshot that has
all that was committed before it began; the first committer wins."""
ON_REQUEST = "strict serializable"
"""What it promises transactions that are all serializable."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    transactions: int
    committed: int
    anomalies: tuple[Anomaly, ...]

    def against(self, level: str = PROMISED) -> list[Anomaly]:
        """The anomalies that the level excludes."""
        return [one for one in self.anomalies if one.name in LEVELS[level]]

    def levels(self) -> list[str]:
        """The levels that nothing speaks against."""
        return [level for level in LEVELS if not self.against(level)]

    def counts(self) -> dict[str, int]:
        return dict(Counter(one.name for one in self.anomalies).most_common())

    def __str__(self) -> str:
        by_name = defaultdict(list)
        for one in self.anomalies:
            by_name[one.name].append(one.why)
        lines = [
            f"{self.transactions} transactions, {self.committed} committed;"
            f" consistent with: {', '.join(self.levels()) or 'no level'}"
        ]
        for name, reasons in by_name.items():
            lines.append(f"{name}: {len(reasons)}")
            lines += [f"  {why}" for why in reasons[:_SHOWN]]
        return "\n".join(lines)


def judge(history: Sequence[Attempt]) -> Verdict:
    """The anomalies of a history. Cycles of one name in one knot count once. Raises
    MalformedHistory if a value was written twice, or a key is of two kinds."""
    facts = Observations(history)
    depends = list(dependencies(facts))
    anomalies = list(facts.anomalies)
    names: set[tuple[str, frozenset[int]]] = set()
    for clock in (False, True):
        graphs = [
            by_transactions(facts, depends, ("ww",), clock),
            by_transactions(facts, depends, ("ww", "wr"), clock),
            by_moments(facts, depends, clock),
            by_transactions(facts, depends, ("ww", "wr", "rw"), clock),
        ]
        for cycle, moments in (
            (cycle, graph is graphs[2]) for graph in graphs for cycle in cycles(graph)
        ):
            name = _name(cycle, skew=not moments)
            members = frozenset(first for first, _, _ in cycle)
            if name.endswith("-realtime") != clock or (name, members) in names:
                continue
            names.add((name, members))
            anomalies.append(Anomaly(name, tuple(sorted(members)), _told(facts, cycle)))
    return Verdict(len(history), sum(facts.committed), tuple(anomalies))


def _name(cycle: Cycle, skew: bool) -> str:
    """The anomaly; `skew` says whether neighbouring anti-dependencies make the cycle a harmless one
    for snapshot isolation, as they do among whole transactions."""
    kinds = [one.kind if one else "clock" for _, _, one in cycle]
    anti = kinds.count("rw")
    keys = {one.key for _, _, one in cycle if one}
    timed = "clock" in kinds or any(one.timed for _, _, one in cycle if one)
    adjacent = skew and any(
        kind == before == "rw" for kind, before in zip(kinds, [kinds[-1], *kinds], strict=False)
    )
    if not anti:
        name = "G1c" if "wr" in kinds else "G0"
    elif anti == 1:
        pair = sorted(kinds)
        name = "G-single"
        if pair == ["rw", "wr"] and len(keys) > 1:
            name = "fractured read"
        elif pair == ["rw", "ww"] and len(keys) == 1:
            name = "lost update"
    elif adjacent:
        name = "write skew" if kinds == ["rw", "rw"] and len(keys) > 1 else "G2"
    else:
        fork = [kind for kind in kinds if kind != "rw"] == ["wr", "wr"]
        name = "long fork" if fork and anti == 2 else "G-nonadjacent"
    return f"{name}-realtime" if timed else name


def _told(facts: Observations, cycle: Cycle) -> str:
    steps = [
        f"{facts.name(first)} before {facts.name(second)},"
        f" {_why(one.kind if one else 'clock', first, second)}"
        f"{': ' + one.why if one else ''}"
        for first, second, one in cycle
    ]
    members = sorted({first for first, _, _ in cycle})
    shown = "; ".join(f"{facts.name(place)} = [{facts.history[place]}]" for place in members[:6])
    return f"{'; '.join(steps)}. {shown}"


def _why(kind: str, first: int, second: int) -> str:
    return {
        "ww": f"ww, since T{second + 1}",
        "wr": f"wr, since T{second + 1}",
        "rw": f"rw, since T{first + 1}",
        "clock": "by the clock",
    }[kind]
