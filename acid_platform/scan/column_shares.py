"""How several threads share the columns of a stripe."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_WORTH_A_THREAD = 4
"""The cost of columns, see `_cost`, that takes longer than to start a thread for them."""


def shares(names: Sequence[str], stored: pa.Schema, threads: int) -> list[list[str]]:
    """The columns for each thread, so that all take about the same time; at least one share."""
    if threads < 2 or len(names) < 2:
        return [list(names)]
    costs = {name: _cost(stored, name) for name in names}
    if sum(costs.values()) - max(costs.values()) < _WORTH_A_THREAD:
        return [list(names)]
    made: list[list[str]] = [[] for _ in range(threads)]
    taken = [0] * len(made)
    for name in sorted(names, key=lambda name: -costs[name]):
        least = taken.index(min(taken))
        made[least].append(name)
        taken[least] += costs[name]
    return [share for share in made if share]


def _cost(stored: pa.Schema, name: str) -> int:
    """How long a column takes to decode, where 1 is an integer; measured on TPC-H's lineitem."""
    at = stored.get_field_index(name)
    if at < 0:
        root, _, field = name.partition(".")
        kind = stored.field(root).type.field(field).type
    else:
        kind = stored.field(at).type
    if pa.types.is_nested(kind):
        return 20
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 1
    if pa.types.is_floating(kind) or pa.types.is_date(kind):
        return 2
    return 5
