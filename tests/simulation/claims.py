"""The model's assertions, and how it reads answers."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Broken(AssertionError):
    """A rule does not hold."""


def claim(rule: str, holds: bool, *told: object) -> None:
    if not holds:
        raise Broken(f"{rule}: " + " ".join(map(str, told)))


def full(name: str) -> str:
    return name if "." in name else f"default.{name}"


def value(rule: str, own: Json | None) -> Json:
    claim(rule, own is not None and "value" in own, "answered", own)
    assert own is not None
    value: Json = own["value"]
    return value


def expect(rule: str, own: Json | None, *errors: str) -> None:
    got = None if own is None else own.get("error", ["value"])[0]
    claim(rule, got in errors, "answered", own, "not", errors)
