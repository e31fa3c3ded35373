"""Inserts that share a directory: each has its row in the history (P44)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acid_platform import InvalidDefinition
from acid_platform.metastore.codec import encode
from tests.metastore.world import INSERT, World


def commit(world: World, shares: tuple[int, ...]) -> None:
    txn = world.write("t", INSERT)
    report = replace(world.report(txn, "t", None, INSERT, rows=6), shares=shares)
    world.call("commit", txn=txn.id, writes=[encode(report)])


def test_P44_each_insert_that_shares_a_directory_has_its_row_in_the_history() -> None:
    world = World()
    world.create()
    commit(world, ())
    commit(world, (1, 2, 3))
    written = world.state.written
    assert [(row.write_id, row.rows, row.bytes, row.files) for row in written] == [
        (1, 6, 60, 1),
        (2, 1, 60, 1),
        (2, 2, 0, 0),
        (2, 3, 0, 0),
    ]
    assert len({row.directory for row in written}) == 2


def test_P44_shares_that_are_not_the_rows_of_the_directory_are_refused() -> None:
    world = World()
    world.create()
    with pytest.raises(InvalidDefinition, match=r"has 6 rows.*report 5"):
        commit(world, (2, 3))
    assert world.state.written == []
