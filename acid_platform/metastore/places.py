"""Where tables are, for the metastore and for everybody else.

The metastore does not know where the warehouse is; its client does, and translates (P31). A table
in the warehouse has the location `db.db/t` in the metastore, so that the directory can be moved.
External locations stay as they are.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, Self

from acid_platform.base.paths import absolute, is_uri


def is_relative(location: str) -> bool:
    """Whether the metastore's location is inside the warehouse."""
    return not location.startswith("/") and "://" not in location


def below(location: str, root: str) -> str | None:
    """The path from `root` to a location inside it; None if the location is outside."""
    return location[len(root) + 1 :] if location.startswith(f"{root}/") else None


class Occupied:
    """The locations of tables, each with the id of its table. What is near one is found without a
    look at the others."""

    def __init__(self, taken: Iterable[tuple[str, int]] = ()) -> None:
        self._sorted = sorted(taken)
        self._outside = {pair for pair in self._sorted if not is_relative(pair[0])}

    def add(self, location: str, table_id: int) -> None:
        insort(self._sorted, (location, table_id))
        if not is_relative(location):
            self._outside.add((location, table_id))

    def remove(self, location: str, table_id: int) -> None:
        del self._sorted[bisect_left(self._sorted, (location, table_id))]
        self._outside.discard((location, table_id))

    def near(self, location: str) -> Iterator[int]:
        """The tables at the location, above it and below it."""
        whole = f"{location}/"
        for end in (index for index, letter in enumerate(whole) if letter == "/"):
            yield from self._between(whole[:end], whole[:end] + "\0")
        yield from self._between(whole, f"{location}0")  # "0" is the character after "/"

    def _between(self, first: str, end: str) -> Iterator[int]:
        low, high = (bisect_left(self._sorted, (text, 0)) for text in (first, end))
        return (table_id for _, table_id in self._sorted[low:high])

    def outside(self) -> Iterator[int]:
        """The tables outside of the warehouse."""
        return (table_id for _, table_id in self._outside)


class Places:
    """Translates locations in the warehouse at `root`, a path or URI; without a root, none."""

    def __init__(self, root: str = "") -> None:
        self.root = absolute(root) if root else ""
        self.spellings: tuple[str, ...] = (self.root,) if root else ()
        """The root as given, and with symbolic links resolved."""
        if root and not is_uri(root):
            self.spellings = tuple(dict.fromkeys((self.root, os.path.realpath(self.root))))

    def inward(self, location: str) -> str:
        """The location as the metastore stores it."""
        if not self.root or not location:
            return location
        where = absolute(location)
        spelt = [where] if is_uri(where) else [where, os.path.realpath(where)]
        for path in spelt:
            for root in self.spellings:
                inside = below(path, root)
                if inside is not None:
                    return inside
        return where

    def outward(self, location: str) -> str:
        """The location as everybody else needs it."""
        if not self.root or not location or not is_relative(location):
            return location
        return f"{self.root}/{location}"


class Located(ABC):
    """An answer of the metastore, or a record in one, that holds a location."""

    __slots__ = ()

    @abstractmethod
    def placed(self, places: Places) -> Self:
        """Returns it with the location as everybody else needs it."""


def placed(places: Places, answer: Any) -> Any:
    """The answer of an operation, with whole paths or URIs in place of relative locations."""
    if isinstance(answer, Located):
        return answer.placed(places)
    if isinstance(answer, list) and answer and isinstance(answer[0], Located):
        return [record.placed(places) for record in answer]
    if isinstance(answer, dict):
        return {key: placed(places, value) for key, value in answer.items()}
    return answer
