"""Which name a misspelt one may mean."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """The most similar of `names`. None if no name is similar, or if `name` is one of them: then it
    is not misspelt, and what is wrong with it is something else."""
    known = list(names)
    if name in known:
        return None
    return next(iter(get_close_matches(name, known, 1, similarity)), None)
