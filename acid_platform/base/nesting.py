"""Texts that are nested more deeply than Python's stack allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from acid_platform.errors import UnsupportedStatement


@contextmanager
def shallow(what: str) -> Iterator[None]:
    """Raises UnsupportedStatement, which names `what`, if the block runs out of stack."""
    try:
        yield
    except RecursionError:
        raise UnsupportedStatement(
            f"{what} is nested too deeply; write IN (…) for a long chain of OR, or split it"
        ) from None
