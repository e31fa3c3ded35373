"""Who depends on whom, by Adya's direct dependencies, as far as a history proves them.

`ww`: the second one's version follows the first one's. `wr`: the second one read the first one's
version. `rw`: the first one read a version that the second one replaced, so it did not see that
one. A list shows its order by itself. A set has none, but who lacks an element did not see its
writer. A register's order follows from those who read and then wrote it, and, for levels that
promise the order of the clock, from writers of which one ended before the other began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.judge.observations import Observations


@dataclass(frozen=True, slots=True)
class Dependency:
    first: int
    second: int
    kind: str
    """`ww`, `wr` or `rw`."""
    key: str
    why: str
    timed: bool = False
    """Whether it holds only if the order of versions is that of the clock."""


def dependencies(facts: Observations) -> Iterator[Dependency]:
    """Between committed transactions, and of their writes with the reads of others."""
    for key, kind in facts.kinds.items():
        of_kind = {"list": _of_list, "set": _of_set, "register": _of_register}[kind]
        for one in of_kind(facts, key):
            if one.first != one.second:
                yield one


def _of_list(facts: Observations, key: str) -> Iterator[Dependency]:
    writer_of = {
        value: place for place in facts.writers[key] for value in facts.marks[place].writes[key]
    }
    order = facts.orders.get(key, ())
    chain = [value for value in dict.fromkeys(order) if value in writer_of]
    never_read = [value for value in writer_of if value not in order]
    for value, after in pairwise(chain):
        yield Dependency(
            writer_of[value], writer_of[after], "ww", key, f"{after} follows {value} in {key}"
        )
    for value in never_read if chain else []:
        yield Dependency(
            writer_of[chain[-1]],
            writer_of[value],
            "ww",
            key,
            f"{value} is in no version of {key} that was read, and {chain[-1]} is",
        )
    for reader in facts.readers[key]:
        version = facts.marks[reader].reads[key]
        assert isinstance(version, tuple)
        if version and version[-1] in writer_of:
            yield Dependency(
                writer_of[version[-1]], reader, "wr", key, f"read {version[-1]} in {key}"
            )
        if version != order[: len(version)]:
            continue  # an incompatible order: nothing tells what it did not see
        missed = next((value for value in order[len(version) :] if value in writer_of), None)
        for value in never_read if missed is None else [missed]:
            yield Dependency(reader, writer_of[value], "rw", key, f"did not see {value} in {key}")


def _of_set(facts: Observations, key: str) -> Iterator[Dependency]:
    for reader in facts.readers[key]:
        version = facts.marks[reader].reads[key]
        assert isinstance(version, frozenset)
        for writer in facts.writers[key]:
            values = set(facts.marks[writer].writes[key])
            if values & version:
                yield Dependency(writer, reader, "wr", key, f"saw {min(values & version)} in {key}")
            if values - version:
                yield Dependency(
                    reader, writer, "rw", key, f"did not see {min(values - version)} in {key}"
                )


def _of_register(facts: Observations, key: str) -> Iterator[Dependency]:
    writer_of = {facts.marks[place].writes[key][-1]: place for place in facts.writers[key]}
    follows: dict[int | None, dict[int, tuple[str, bool]]] = {
        None: {value: (f"{value} is a value of {key}", False) for value in writer_of}
    }
    for value, place in writer_of.items():
        before = facts.marks[place].reads.get(key)
        if before is not None and isinstance(before, int):
            follows.setdefault(before, {})[value] = (f"wrote {value} after it had read", False)
    for value, place in writer_of.items():
        ended = facts.history[place].ended
        for after, later in writer_of.items():
            if ended is not None and ended < facts.history[later].began:
                follows.setdefault(value, {}).setdefault(
                    after, (f"wrote {after} later than {value}", True)
                )
    for value, place in writer_of.items():
        for after, (why, timed) in follows.get(value, {}).items():
            yield Dependency(place, writer_of[after], "ww", key, f"{why} in {key}", timed)
    for reader in facts.readers[key]:
        version = facts.marks[reader].reads[key]
        if isinstance(version, int) and version in writer_of:
            yield Dependency(writer_of[version], reader, "wr", key, f"read {version} in {key}")
        if version is None or isinstance(version, int):
            for after, (why, timed) in follows.get(version, {}).items():
                yield Dependency(
                    reader,
                    writer_of[after],
                    "rw",
                    key,
                    f"did not see {after} in {key} ({why})",
                    timed,
                )
