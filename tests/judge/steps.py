"""Short words to write histories with, for tests."""

from __future__ import annotations

from tests.judge.recorded import Attempt, Outcome, Step


def append(key: str, value: int) -> Step:
    return Step("append", key, value)


def reads(key: str, *values: int) -> Step:
    """A list."""
    return Step("list", key, values)


def add(key: str, value: int) -> Step:
    return Step("add", key, value)


def sees(key: str, *values: int) -> Step:
    """A set."""
    return Step("set", key, frozenset(values))


def write(key: str, value: int) -> Step:
    return Step("write", key, value)


def get(key: str, value: int | None = None) -> Step:
    """A register."""
    return Step("register", key, value)


def txn(*steps: Step, outcome: Outcome = "ok", at: tuple[int, int] | None = None) -> Attempt:
    """A transaction; without `at` nothing is known of its times: it may have run beside all."""
    began, ended = at if at is not None else (0, None)
    return Attempt("client", steps, outcome, began, None, None, ended)
