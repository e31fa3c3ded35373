"""apache/hive #2747 (HIVE-25638): one code path of the vectorised reader returned deleted rows.

So all of our code paths read the same table: whole files and single stripes, ids wanted or not,
predicate or not, bases, deltas, originals, loaded files, mixed write ids, and the compactor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acid_platform.scan import decode
from tests.acid_files import AcidTable, P
from tests.readers import all_readers as all_readers

pytestmark = pytest.mark.more


def base(table: AcidTable, values: list[str]) -> int:
    table.inserts("b1v9", [(1, P, i, v) for i, v in enumerate(values)], stripe_size=1024)
    return 1


def delta(table: AcidTable, values: list[str]) -> int:
    table.inserts("d1", [(1, P, i, v) for i, v in enumerate(values)], stripe_size=1024)
    return 1


def mixed(table: AcidTable, values: list[str]) -> int:
    """Half of a compacted delta belongs to an aborted write id."""
    rows = [(w, P, i, v) for w in (1, 2) for i, v in enumerate(values)]
    table.inserts("d1-2v9", rows, stripe_size=1024)
    return 1


def original(table: AcidTable, values: list[str]) -> int:
    table.raw("o", values, stripe_size=1024)
    return 0


def loaded(table: AcidTable, values: list[str]) -> int:
    table.raw("d1/000000_0", values, stripe_size=1024)
    return 1


@pytest.mark.parametrize("small", [0, 1 << 30], ids=["stripes", "files"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"where": "v >= ''"},
        {"row_id": True},
        {"where": "v <> 'x'", "row_id": True},
        {"columns": ["v"], "where": "v IS NOT NULL"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [base, delta, mixed, original, loaded])
def test_no_path_returns_a_deleted_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
    options: dict[str, Any],
    kind: Callable[[AcidTable, list[str]], int],
) -> None:
    monkeypatch.setattr(decode, "SMALL_BYTES", small)
    table = AcidTable(tmp_path)
    values = [f"{i:05d}" for i in range(12_000)]
    write_id = kind(table, values)
    gone = [0, 1, 5_000, 9_999, 11_999]
    table.deletes("D3", [(write_id, P, i) for i in gone], current=3)
    expected = [v for i, v in enumerate(values) if i not in gone]
    assert table.values("3:M::2", **options) == expected
    if kind is not loaded or not options:
        table.compact("major", "3:M::2")
        assert table.values("3:M::2", **options) == expected
