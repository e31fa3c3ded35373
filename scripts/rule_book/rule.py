"""A rule, a number of Hive's that has no rule here, and a group of both."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """What the platform guarantees, where that is enforced, and which tests prove it."""

    id: str
    sentence: str
    places: tuple[str, ...]
    """`package.module` or `package.module:Class.function` in acid_platform; each names the id."""
    tests: tuple[str, ...]
    """Names of test functions; each has the id in its name or docstring."""


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """What Hive does under this number, and why it is not done here."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Group:
    letter: str
    title: str
    about: str
    rules: tuple[Rule, ...]
    not_built: tuple[NotBuilt, ...] = ()
