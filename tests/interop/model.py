"""The rows that tables of a mixed history may hold, whoever wrote them.

Statements run at the same time, and some have an unknown outcome, since the gateway was killed
meanwhile. The model has every order of them. Each statement chooses its rows by `id` and partition,
which no statement changes, so committed statements without a conflict have the effect of one of
the orders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, permutations
from random import Random

Row = tuple[int, int, str, int]
"""`id`, `v`, `s` and `p`."""
Rows = frozenset[Row]
COLUMNS = ("id", "v", "s", "p")
PARTITIONS = 3


class Outcome(Enum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Change:
    """A statement that writes, and what it does to the rows."""

    kind: str
    statement: str
    effect: Callable[[Rows], Rows]


def partition_of(row_id: int) -> int:
    return row_id % PARTITIONS


def states(before: Rows, done: Sequence[Change], unknown: Sequence[Change] = ()) -> set[Rows]:
    """What may be there after all of `done` and any of `unknown`, in every order."""
    found: set[Rows] = set()
    for number in range(len(unknown) + 1):
        for some in combinations(unknown, number):
            for order in permutations([*done, *some]):
                rows = before
                for change in order:
                    rows = change.effect(rows)
                found.add(rows)
    return found


def seen_meanwhile(before: Rows, changes: Sequence[Change]) -> set[Rows]:
    """What a snapshot may see while these statements run; each of them is committed at once."""
    return states(before, [], changes)


def rows_of(values: Iterable[Sequence[object]]) -> Rows:
    """Rows as an engine returned them. Raises ValueError if a row is there twice."""
    listed = [(int(str(i)), int(str(v)), str(s), int(str(p))) for i, v, s, p in values]
    found = frozenset(listed)
    if len(found) != len(listed):
        twice = sorted({row for row in listed if listed.count(row) > 1})[:3]
        raise ValueError(f"rows that are there twice: {twice}")
    return found


class Statements:
    """Random statements on a table with the columns `COLUMNS`, of which `p` may be a partition."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next_id = 0

    def _fresh(self, count: int) -> list[int]:
        first = self._next_id
        self._next_id += count
        return list(range(first, first + count))

    def change(self, table: str, kinds: Collection[str], who: str) -> Change:
        """A statement of one of these kinds."""
        kind = self._random.choice(sorted(kinds))
        made: Change = getattr(self, f"_{kind}")(table, who)
        return made

    def _chosen(self) -> tuple[str, Callable[[Row], bool]]:
        """A condition, and what it means."""
        step = self._random.choice((2, 3, 5, 7))
        rest = self._random.randrange(step)
        if self._random.random() < 0.3:
            low = self._random.randrange(max(1, self._next_id))
            return (
                f"id >= {low} AND id < {low + 40}",
                lambda row: low <= row[0] < low + 40,
            )
        if self._random.random() < 0.3:
            part = self._random.randrange(PARTITIONS)
            return (
                f"p = {part} AND id % {step} = {rest}",
                lambda row: row[3] == part and row[0] % step == rest,
            )
        return f"id % {step} = {rest}", lambda row: row[0] % step == rest

    def _insert(self, table: str, who: str) -> Change:
        ids = self._fresh(self._random.choice((1, 2, 5, 20)))
        rows = frozenset((number, 0, who, partition_of(number)) for number in ids)
        values = ", ".join(f"({i}, {v}, '{s}', {p})" for i, v, s, p in sorted(rows))
        return Change("insert", f"INSERT INTO {table} VALUES {values}", lambda old: old | rows)

    def _update(self, table: str, who: str) -> Change:
        text, chosen = self._chosen()
        return Change(
            "update",
            f"UPDATE {table} SET v = v + 1, s = '{who}' WHERE {text}",
            lambda old: frozenset(
                (row[0], row[1] + 1, who, row[3]) if chosen(row) else row for row in old
            ),
        )

    def _delete(self, table: str, who: str) -> Change:
        text, chosen = self._chosen()
        text, rest = f"{text} AND id % 3 = 1", 1
        return Change(
            "delete",
            f"DELETE FROM {table} WHERE {text}",
            lambda old: frozenset(row for row in old if not (chosen(row) and row[0] % 3 == rest)),
        )

    def _merge(self, table: str, who: str) -> Change:
        """Updates rows with known ids, as far as they are there, and inserts two new ones.

        Known rows that were deleted are not inserted: two merges at once could both do so.
        """
        known = self._random.sample(range(max(1, self._next_id)), min(4, max(1, self._next_id)))
        new = self._fresh(2)
        given = sorted([*((number, 0) for number in known), *((number, 1) for number in new)])
        source = " UNION ALL ".join(
            f"SELECT {number} AS id, {partition_of(number)} AS p, {is_new} AS n"
            for number, is_new in given
        )
        inserted = frozenset((number, 0, who, partition_of(number)) for number in new)
        return Change(
            "merge",
            f"MERGE INTO {table} t USING ({source}) s ON t.id = s.id AND t.p = s.p"
            f" WHEN MATCHED THEN UPDATE SET v = t.v + 1, s = '{who}'"
            f" WHEN NOT MATCHED AND s.n = 1 THEN INSERT VALUES (s.id, 0, '{who}', s.p)",
            lambda old: (
                inserted
                | frozenset(
                    (row[0], row[1] + 1, who, row[3]) if row[0] in known else row for row in old
                )
            ),
        )

    def _overwrite(self, table: str, who: str) -> Change:
        ids = self._fresh(30)
        rows = frozenset((number, 0, who, partition_of(number)) for number in ids)
        source = " UNION ALL ".join(f"SELECT {i}, {v}, '{s}', {p}" for i, v, s, p in sorted(rows))
        return Change("overwrite", f"INSERT OVERWRITE TABLE {table} {source}", lambda old: rows)

    def _truncate(self, table: str, _who: str) -> Change:
        return Change("truncate", f"TRUNCATE TABLE {table}", lambda old: frozenset())
