"""Where tables are, for the metastore and for everybody else.

The metastore does not know where the warehouse is; its client does, and translates (P31). A table
in the warehouse has the location `db.db/t` in the metastore, so that the directory can be moved.
External locations stay as they are.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Self

from acid_platform.base.paths import absolute, is_uri


def is_relative(location: str) -> bool:
    """Whether the metastore's location is inside the warehouse."""
    return not location.startswith("/") and "://" not in location


def below(location: str, root: str) -> str | None:
    """The path from `root` to a location inside it; None if the location is outside."""
    return location[len(root) + 1 :] if location.startswith(f"{root}/") else None


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
