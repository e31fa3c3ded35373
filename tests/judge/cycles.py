"""Cycles of dependencies, in two graphs.

*By transactions*, for serializability: each is one node. *By snapshots and commits*, for snapshot
isolation (Adya's start-ordered graph; Cerone and Gotsman, *Analysing Snapshot Isolation*, 2016):
each transaction is the moment of its snapshot and that of its commit. Who read or follows another's
version took its snapshot after that commit; who did not see a version took it before that commit.
A cycle then needs two things that follow each other to be earlier than each other. Cycles with two
neighbouring anti-dependencies are none in this graph: snapshot isolation allows those (write skew).

The clock: moments that are known to lie before an instant come before those known to lie after it.
Instants form a chain of nodes of their own, so that the number of edges stays linear.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.judge.dependencies import Dependency
from tests.judge.observations import Observations

Edges = dict[int, dict[int, Dependency | None]]
"""From node to node; without a dependency between the two moments of a transaction, and for the
clock."""
_TRIED = 60
"""Of a knot of cycles so many nodes are tried for a shortest cycle; any one of them is a proof."""
_STRENGTH = {"ww": 0, "wr": 1, "rw": 2}


@dataclass(frozen=True, slots=True)
class Graph:
    edges: Edges
    owner: dict[int, int]
    """Of each node its transaction; instants have none."""


def by_transactions(
    facts: Observations, depends: Iterable[Dependency], kinds: Iterable[str], clock: bool = False
) -> Graph:
    """Only committed transactions: nothing is promised to others at these levels."""
    committed = [place for place, right in enumerate(facts.committed) if right]
    edges: Edges = defaultdict(dict)
    for one in sorted(depends, key=lambda one: _STRENGTH[one.kind]):
        usable = facts.committed[one.first] and facts.committed[one.second]
        if one.kind in kinds and usable and (clock or not one.timed):
            edges[one.first].setdefault(one.second, one)
    if clock:
        attempts = facts.history
        _tick(
            edges,
            len(attempts),
            [(place, attempts[place].ended) for place in committed],
            [(place, attempts[place].began) for place in committed],
        )
    return Graph(edges, {place: place for place in committed})


def by_moments(facts: Observations, depends: Iterable[Dependency], clock: bool = False) -> Graph:
    """The snapshot of transaction n is node 2n, its commit node 2n + 1."""
    edges: Edges = defaultdict(dict)
    for place, committed in enumerate(facts.committed):
        if committed:
            edges[2 * place][2 * place + 1] = None
    for one in depends:
        if clock or not one.timed:
            first, second = 2 * one.first, 2 * one.second
            if one.kind == "rw":
                edges[first].setdefault(second + 1, one)
            else:
                edges[first + 1].setdefault(second, one)
    if clock:
        latest: list[tuple[int, int | None]] = []
        earliest = []
        for place, attempt in enumerate(facts.history):
            reads = attempt.first_read if attempt.first_read is not None else attempt.ended
            latest.append((2 * place, reads))
            earliest.append((2 * place, attempt.began))
            if facts.committed[place]:
                latest.append((2 * place + 1, attempt.ended))
                sent = attempt.sent if attempt.sent is not None else attempt.began
                earliest.append((2 * place + 1, sent))
        _tick(edges, 2 * len(facts.history), latest, earliest)
    return Graph(edges, {node: node // 2 for node in range(2 * len(facts.history))})


def _tick(
    edges: Edges,
    free: int,
    latest: Sequence[tuple[int, int | None]],
    earliest: Sequence[tuple[int, int]],
) -> None:
    """Adds the clock, with nodes from `free` on: nodes that lie before an instant, and after it."""
    # At one instant those that begin come first: only what ended strictly before is earlier.
    events = [(at, 1, node) for node, at in latest if at is not None]
    events += [(at, 0, node) for node, at in earliest]
    instant = None
    for _, is_latest, node in sorted(events):
        if is_latest:
            edges[node].setdefault(free, None)
            if instant is not None:
                edges[instant].setdefault(free, None)
            instant = free
            free += 1
        elif instant is not None:
            edges[instant].setdefault(node, None)


def knots(edges: Edges) -> Iterator[list[int]]:
    """The strongly connected components of more than one node (Tarjan, 1972)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_path:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    start = path.index(node) if len(path) < 64 else _position(path, node)
                    component = path[start:]
                    del path[start:]
                    on_path.difference_update(component)
                    if len(component) > 1:
                        yield component


def _position(path: list[int], node: int) -> int:
    """From the end, where it nearly always is."""
    return next(at for at in range(len(path) - 1, -1, -1) if path[at] == node)


Cycle = list[tuple[int, int, Dependency | None]]
"""Transactions with what leads from one to the next; None is the clock."""


def cycles(graph: Graph) -> Iterator[Cycle]:
    """For each knot, shortest cycles through its nodes."""
    for knot in knots(graph.edges):
        inside = set(knot)
        nodes = sorted(node for node in knot if node in graph.owner)
        for node in nodes[:: max(1, len(nodes) // _TRIED)]:
            yield _collapsed(graph, _shortest(graph.edges, node, inside))


def _shortest(edges: Edges, start: int, inside: set[int]) -> list[int]:
    """The nodes of a shortest cycle, the first one again at its end."""
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in edges.get(node, ()):
            if target in inside and target not in came:
                came[target] = node
                if target == start:
                    queue.clear()
                    break
                queue.append(target)
    path = [start, came[start]]
    while path[-1] != start:
        path.append(came[path[-1]])
    return path[::-1]


def _collapsed(graph: Graph, path: list[int]) -> Cycle:
    """From one transaction to another; between two moments of one there is nothing to say."""
    steps: Cycle = []
    first = graph.owner[path[0]]
    for node, target in pairwise(path):
        if target not in graph.owner:
            continue
        second = graph.owner[target]
        if second != first or node not in graph.owner:
            one = graph.edges[node][target] if node in graph.owner else None
            if second != first:
                steps.append((first, second, one))
        first = second
    return steps
