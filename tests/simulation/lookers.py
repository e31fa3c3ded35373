"""The keys that writers look for and bring, and what the model knows of them (P51).

Most runs have one form of regions, the values of a column or hashes of keys, and some have both.
"""

from __future__ import annotations

import random
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from acid_platform.metastore.messages import encode
from acid_platform.transactions.row_sets import ColumnSpans, KeyHashes, Region

KEYS = range(4)
COLUMNS = ("k", "v")
Found = frozenset[tuple[int, int, str]]
"""Table id, key, and a column whose value counts."""


@dataclass(frozen=True, slots=True)
class Regions:
    """What a transaction looked for and brought."""

    sought: Found = frozenset()
    inserted: Found = frozenset()
    """Rows that it inserted, or gave values in some columns."""
    new: Found = frozenset()
    """Of these the inserted ones."""
    given: Found = frozenset()
    """The rows that have keys which it gave to others."""

    def missed(self, other: Regions, told: bool) -> bool:
        """Whether it would find rows of the other one; unless they are `told`, in some table."""
        if told:
            return bool(self.sought & other.inserted or self.given & other.new)
        mine, theirs = (
            {table for table, *_ in found}
            for found in (self.sought | self.inserted, other.inserted)
        )
        return bool(mine & theirs)


@dataclass(frozen=True, slots=True)
class Looker:
    """What a committed transaction looked for and brought."""

    txn: int
    committed: int
    regions: Regions


def region_of(keys: list[int], hashed: bool, compared: tuple[str, ...] = ()) -> dict[str, Any]:
    """A region as a client sends it; of all keys, that of a table."""
    if len(keys) == len(KEYS):
        return encode(Region(compared=compared))
    if hashed:
        return encode(Region({}, KeyHashes.of(["k"], [(key,) for key in keys]), compared))
    return encode(Region({"k": ColumnSpans.of((key, key) for key in keys)}, None, compared))


def regions_of(told: dict[str, list[tuple[int, dict[str, Any]]]]) -> Regions:
    """Of table ids and regions that `looked_for` made."""
    found: dict[str, set[tuple[int, int, str]]] = {}
    for side, listed in told.items():
        for table, region in listed:
            compared = region.get("compared", COLUMNS)
            rows = {(table, key, name) for key in keys_in(region) for name in compared}
            found.setdefault(side, set()).update(rows)
            if side != "inserted":
                continue
            if "compared" not in region:
                found.setdefault("new", set()).update(rows)
                continue
            # Of a value that isn't told, any new row may have it.
            known = keys_in(region) if "k" in compared and "keys" not in region else KEYS
            given = {(table, key, name) for key in known for name in COLUMNS}
            found.setdefault("given", set()).update(given)
    return Regions(**{side: frozenset(rows) for side, rows in found.items()})


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


FORMS = (0.0, 1.0, 0.5)
"""How many of the regions of a run tell keys by hashes."""


def looked_for(names: list[str], choice: random.Random, hashed: float) -> dict[str, Any]:
    """What a commit tells of some tables."""

    def some() -> list[dict[str, Any]]:
        return [
            {
                "table": name,
                "region": region_of(
                    choice.sample(KEYS, choice.choice((1, 1, 2, 4))),
                    choice.random() < hashed,
                    choice.choice(((), (), ("k",), ("k",), ("v",), COLUMNS)),
                ),
            }
            for name in names
            if choice.random() < 0.8
        ]

    return {"sought": some(), "inserted": some()}
