"""The keys that writers look for and insert, and what the model knows of them (P51).

A run has one form of regions: the values of a column, or hashes of keys.
"""

from __future__ import annotations

import random
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from acid_platform.metastore.messages import encode
from acid_platform.transactions.row_sets import EVERY, ColumnSpans, KeyHashes, Region

KEYS = range(4)
Found = frozenset[tuple[int, int]]
"""Pairs of table id and key."""


@dataclass(frozen=True, slots=True)
class Looker:
    """What a committed transaction looked for and inserted."""

    txn: int
    committed: int
    sought: Found
    inserted: Found


def region_of(keys: list[int], hashed: bool) -> dict[str, Any]:
    """A region as a client sends it; of all keys, that of a table."""
    if len(keys) == len(KEYS):
        return encode(EVERY)
    if hashed:
        return encode(Region({}, KeyHashes.of(["k"], [(key,) for key in keys])))
    return encode(Region({"k": ColumnSpans.of((key, key) for key in keys)}))


def keys_in(region: dict[str, Any]) -> list[int]:
    """The keys of a region that `region_of` made."""
    if not region["columns"] and "keys" not in region:
        return [*KEYS]
    return [key for key in KEYS if _parts(region) & _parts(region_of([key], "keys" in region))]


def _parts(region: dict[str, Any]) -> set[object]:
    if "keys" in region:
        joined = b64decode(region["keys"]["hashes"])
        return {joined[at : at + 8] for at in range(0, len(joined), 8)}
    return {tuple(span) for span in region["columns"]["k"]["spans"]}


def looked_for(names: list[str], choice: random.Random, hashed: bool) -> dict[str, Any]:
    """What a commit tells of some tables."""

    def some() -> list[dict[str, Any]]:
        return [
            {
                "table": name,
                "region": region_of(choice.sample(KEYS, choice.choice((1, 1, 2, 4))), hashed),
            }
            for name in names
            if choice.random() < 0.8
        ]

    return {"sought": some(), "inserted": some()}
