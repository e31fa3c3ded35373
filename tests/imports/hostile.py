"""What properties of a hostile source name: a class that notes that it was called."""

from __future__ import annotations

CALLS: list[tuple[object, ...]] = []


class Ran:
    def __init__(self, *arguments: object, **_: object) -> None:
        CALLS.append(arguments)
        raise AssertionError("a property of a source has chosen code")
