"""Whether any order of snapshots and commits explains a history: tries them all.

It shares nothing with the judge but the records, so that the two check each other. Exponential: for
histories of a few transactions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.judge.recorded import Attempt, Step

Store = Mapping[str, tuple[int, ...]]
"""Of each key what was written, in order."""


def explained(history: Sequence[Attempt], serializable: bool = False) -> bool:
    """Whether snapshot isolation, or serializability, allows the history; all are committed.

    Serializable: commit follows snapshot at once. Else nobody commits whose snapshot misses a
    commit that wrote a list or register of his.
    """
    everybody = frozenset(range(len(history)))
    return _goes_on(history, {}, {}, everybody, serializable)


def _goes_on(
    history: Sequence[Attempt],
    store: Store,
    began: Mapping[int, Store],
    waiting: frozenset[int],
    serializable: bool,
) -> bool:
    if not waiting and not began:
        return True
    for place, snapshot in began.items():
        writes = [step for step in history[place].steps if step.writes]
        stale = any(
            step.do != "add" and store.get(step.key, ()) != snapshot.get(step.key, ())
            for step in writes
        )
        if not stale:
            later = {one: seen for one, seen in began.items() if one != place}
            if _goes_on(history, _after(store, writes), later, waiting, serializable):
                return True
    if serializable and began:
        return False
    return any(
        _goes_on(history, store, {**began, place: store}, waiting - {place}, serializable)
        for place in waiting
        if _reads_right(history[place].steps, store)
    )


def _after(store: Store, writes: Sequence[Step]) -> Store:
    after = dict(store)
    for step in writes:
        after[step.key] = (*after.get(step.key, ()), step.value)
    return after


def _reads_right(steps: Sequence[Step], snapshot: Store) -> bool:
    for step in steps:
        if step.writes:
            snapshot = _after(snapshot, [step])
            continue
        values = snapshot.get(step.key, ())
        right = {
            "list": values,
            "set": frozenset(values),
            "register": values[-1] if values else None,
        }[step.do]
        if step.value != right:
            return False
    return True
