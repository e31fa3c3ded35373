"""Random histories: serial ones pass, a change of one read is named, and an exhaustive search over
all orders comes to the judge's verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judge.every_order import explained
from tests.judge.recorded import WRITES, Attempt, Step
from tests.judge.verdict import LEVELS, judge

KEYS: dict[str, tuple[str, str]] = {
    "x": ("append", "list"),
    "y": ("append", "list"),
    "s": ("add", "set"),
    "r": ("write", "register"),
}
randoms = st.integers(0, 2**32).map(Random)
quick = settings(max_examples=60, deadline=None)


def value_of(store: dict[str, list[int]], key: str) -> object:
    values, kind = store.get(key, []), KEYS[key][1]
    if kind == "set":
        return frozenset(values)
    if kind == "list":
        return tuple(values)
    return values[-1] if values else None


def executed(dice: Random, transactions: int, keys: str, serial: bool) -> list[Attempt]:
    """Runs random steps, serially or as they come, and with aborts; nothing isolates them."""
    plans: list[list[tuple[bool, str]]] = [
        [(dice.random() < 0.5, dice.choice(keys)) for _ in range(dice.randint(1, 4))]
        for _ in range(transactions)
    ]
    turns = [place for place, plan in enumerate(plans) for _ in plan]
    if not serial:
        dice.shuffle(turns)
    store: dict[str, list[int]] = {}
    steps: list[list[Step]] = [[] for _ in plans]
    values = count(1)
    for place in turns:
        writes, key = plans[place][len(steps[place])]
        if writes:
            value = next(values)
            store.setdefault(key, []).append(value)
            steps[place].append(Step(KEYS[key][0], key, value))  # type: ignore[arg-type]
        else:
            steps[place].append(Step(KEYS[key][1], key, value_of(store, key)))  # type: ignore[arg-type]
    last = tuple(Step(KEYS[key][1], key, value_of(store, key)) for key in keys)  # type: ignore[arg-type]
    times = [(2 * place + 1, 2 * place + 2) if serial else (0, None) for place in range(len(plans))]
    return [
        *(
            Attempt(f"c{place % 3}", tuple(one), "ok", began, None, None, ended)
            for place, (one, (began, ended)) in enumerate(zip(steps, times, strict=True))
        ),
        Attempt("last", last, "ok", 2 * len(plans) + 1 if serial else 0),
    ]


@quick
@given(randoms)
def test_serial_executions_pass(dice: Random) -> None:
    history = executed(dice, dice.randint(1, 12), "xysr", serial=True)
    assert judge(history).levels() == [*LEVELS]


@quick
@given(randoms)
def test_the_judge_and_an_exhaustive_search_agree(dice: Random) -> None:
    """For keys that show the whole order of their versions the verdict is exact."""
    history = executed(dice, dice.randint(2, 4), dice.choice(("xy", "xs", "xys")), serial=False)
    levels = judge(history).levels()
    assert ("snapshot isolation" in levels) == explained(history), judge(history)
    assert ("serializable" in levels) == explained(history, serializable=True), judge(history)


@quick
@given(randoms)
def test_the_judge_accuses_nobody_whom_a_search_acquits(dice: Random) -> None:
    """A register hides the order of blind writes, so the judge may acquit, and never accuses."""
    history = executed(dice, dice.randint(2, 4), "xr", serial=False)
    levels = judge(history).levels()
    if explained(history):
        assert "snapshot isolation" in levels, judge(history)
    if explained(history, serializable=True):
        assert "serializable" in levels, judge(history)


_MISSED = {"G-single", "G-single-realtime", "fractured read", "lost update", "G1b", "internal"}
_MOVED = {"incompatible order", "G0", "G0-realtime", "G1b", "G1c", "G1c-realtime", "internal"}
CHANGES = {
    "an element is not read": _MISSED,
    "an element is invented": {"garbage read", "internal"},
    "an element is read twice": {"duplicate element", "internal"},
    "two elements change places": _MOVED,
    "who was read is aborted": {"G1a"},
    "who was read began later": {"G1c-realtime"},
}


def changed(dice: Random, history: list[Attempt], what: str) -> list[Attempt] | None:
    """The history with one fault; None if it has no read of that kind."""
    lists = [
        (place, number, step)
        for place, attempt in enumerate(history)
        for number, step in enumerate(attempt.steps)
        if step.do == "list" and len(step.value) >= 2
    ]
    if not lists:
        return None
    place, number, step = dice.choice(lists)
    elements = list(step.value)
    writers = {
        one.value: at
        for at, attempt in enumerate(history)
        for one in attempt.steps
        if one.do in WRITES
    }
    if what == "an element is not read":
        elements.pop()
    elif what == "an element is invented":
        elements.append(999)
    elif what == "an element is read twice":
        elements.append(elements[0])
    elif what == "two elements change places":
        elements[:2] = elements[1::-1]
    else:
        at = writers[elements[-1]]
        if at == place:
            return None
        later = 2 * len(history) + 10
        other = (
            replace(history[at], outcome="fail")
            if what == "who was read is aborted"
            else replace(history[at], began=later, ended=later + 1)
        )
        if what == "who was read began later":  # the last reader's end is not known
            history = [replace(one, ended=one.began + 1) for one in history]
        return [*history[:at], other, *history[at + 1 :]]
    steps = list(history[place].steps)
    steps[number] = Step("list", step.key, tuple(elements))
    return [
        *history[:place],
        replace(history[place], steps=tuple(steps)),
        *history[place + 1 :],
    ]


@settings(max_examples=100, deadline=None)
@given(randoms, st.sampled_from([*CHANGES]))
def test_a_change_of_a_serial_execution_is_named(dice: Random, what: str) -> None:
    history = changed(dice, executed(dice, 8, "xy", serial=True), what)
    if history is not None:
        verdict = judge(history)
        assert CHANGES[what] & set(verdict.counts()), verdict
        assert verdict.against("strong snapshot isolation"), verdict
