"""Two transactions at once leave what they would leave one after the other, where each looked for
rows by a condition in order to write them (P51).

The expected rows come from a model of each verb. Which pairs may not conflict is said besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import pytest

from acid_platform import Transaction, Warehouse
from acid_platform.errors import WriteConflict
from tests.conftest import few_then_more

Row = tuple[int, str, str]
"""id, v, p."""


@dataclass(frozen=True)
class Place:
    """What a transaction writes: a key, in a partition."""

    id: int
    p: str
    v: str

    @property
    def row(self) -> dict[str, object]:
        return {"id": self.id, "v": self.v, "p": self.p}

    @property
    def where(self) -> str:
        return f"id = {self.id} AND p = '{self.p}'"

    @property
    def moved(self) -> int:
        """The id of a row that gets the key by an UPDATE."""
        return -self.id if self.v == "one" else -self.id - 1000

    @property
    def mover(self) -> dict[str, object]:
        return {"id": self.moved, "v": "moved", "p": self.p}

    @property
    def where_moved(self) -> str:
        return f"id = {self.moved} AND p = '{self.p}'"

    @property
    def values(self) -> str:
        return f"({self.id}, '{self.v}', '{self.p}')"

    @property
    def source(self) -> str:
        return f"(SELECT {self.id} AS id, '{self.v}' AS v, '{self.p}' AS p) s"

    def has(self, row: Row) -> bool:
        return (row[0], row[2]) == (self.id, self.p)

    @property
    def stored(self) -> Row:
        return (self.id, self.v, self.p)


ON = "t.id = s.id AND t.p = s.p"
MATCHED, MISSING = "WHEN MATCHED THEN UPDATE SET v = s.v", "WHEN NOT MATCHED THEN INSERT *"


@dataclass(frozen=True)
class Verb:
    name: str
    python: Callable[[Transaction, Place], object]
    sql: Callable[[Place], Sequence[str]]
    model: Callable[[list[Row], Place], list[Row]]
    looks: bool = True
    """Whether it looks for rows and brings some that are missing."""
    moves: bool = False
    """Whether it brings its row by an UPDATE of the key's column."""


def _merge(one: Place, *clauses: str) -> str:
    return f"MERGE INTO db.t t USING {one.source} ON {ON} {' '.join(clauses)}"


def _insert(one: Place) -> str:
    return f"INSERT INTO db.t VALUES {one.values}"


def _insert_missing(one: Place) -> str:
    rows = f"SELECT {one.id}, '{one.v}', '{one.p}'"
    return f"INSERT INTO db.t {rows} WHERE NOT EXISTS (SELECT 1 FROM db.t WHERE {one.where})"


def _update_or_insert(txn: Transaction, one: Place) -> None:
    if not txn.table("db.t").update({"v": f"'{one.v}'"}, one.where):
        txn.table("db.t").insert([one.row])


def _delete_insert(txn: Transaction, one: Place) -> None:
    txn.table("db.t").delete(one.where)
    txn.table("db.t").insert([one.row])


def _replace(txn: Transaction, one: Place) -> None:
    """As the write mode delete+insert does it."""
    txn.table("db.t").merge([one.row], ON, when_matched_delete="true")
    txn.table("db.t").insert([one.row])


def _move(txn: Transaction, one: Place) -> None:
    txn.table("db.t").update({"id": f"{one.id}"}, one.where_moved)


def _delete_move(txn: Transaction, one: Place) -> None:
    txn.table("db.t").delete(one.where)
    _move(txn, one)


def _moving(one: Place, more: str = "") -> str:
    return f"UPDATE db.t SET id = {one.id} WHERE {one.where_moved}{more}"


def _moving_missing(one: Place) -> str:
    return _moving(one, f" AND NOT EXISTS (SELECT 1 FROM db.t WHERE {one.where})")


def _merge_move(one: Place) -> str:
    source = f"(SELECT {one.moved} AS id, {one.id} AS key, '{one.p}' AS p) s"
    clause = "WHEN MATCHED THEN UPDATE SET id = s.key"
    return f"MERGE INTO db.t t USING {source} ON {ON} {clause}"


def _moved(rows: list[Row], one: Place) -> list[Row]:
    """Its row has the key, and the others are as they were."""
    return [(one.id, *row[1:]) if row[0] == one.moved else row for row in rows]


def _without(rows: list[Row], one: Place) -> list[Row]:
    return [row for row in rows if not one.has(row)]


def _there(rows: list[Row], one: Place) -> bool:
    return any(map(one.has, rows))


def _updated(rows: list[Row], one: Place) -> list[Row]:
    return [(row[0], one.v, row[2]) if one.has(row) else row for row in rows]


VERBS = [
    Verb("insert", lambda txn, one: txn.table("db.t").insert([one.row]), lambda one: [_insert(one)],
         lambda rows, one: [*rows, one.stored], looks=False),
    Verb("delete", lambda txn, one: txn.table("db.t").delete(one.where),
         lambda one: [f"DELETE FROM db.t WHERE {one.where}"], _without, looks=False),
    Verb("update", lambda txn, one: txn.table("db.t").update({"v": f"'{one.v}'"}, one.where),
         lambda one: [f"UPDATE db.t SET v = '{one.v}' WHERE {one.where}"], _updated, looks=False),
    Verb("merge that only inserts",
         lambda txn, one: txn.table("db.t").merge([one.row], ON, when_not_matched_insert="*"),
         lambda one: [_merge(one, MISSING)],
         lambda rows, one: rows if _there(rows, one) else [*rows, one.stored]),
    Verb("upsert",
         lambda txn, one: txn.table("db.t").merge(
             [one.row], ON, when_matched_update={"v": "s.v"}, when_not_matched_insert="*"),
         lambda one: [_merge(one, MATCHED, MISSING)],
         lambda rows, one: _updated(rows, one) if _there(rows, one) else [*rows, one.stored]),
    Verb("delete and insert", _delete_insert,
         lambda one: [f"DELETE FROM db.t WHERE {one.where}", _insert(one)],
         lambda rows, one: [*_without(rows, one), one.stored]),
    Verb("merge that deletes, and insert", _replace,
         lambda one: [_merge(one, "WHEN MATCHED THEN DELETE"), _insert(one)],
         lambda rows, one: [*_without(rows, one), one.stored]),
    Verb("insert what is missing", lambda txn, one: txn.sql(_insert_missing(one)),
         lambda one: [_insert_missing(one)],
         lambda rows, one: rows if _there(rows, one) else [*rows, one.stored]),
    Verb("update of the key", _move, lambda one: [_moving(one)], _moved, looks=False, moves=True),
    Verb("delete, and update of the key", _delete_move,
         lambda one: [f"DELETE FROM db.t WHERE {one.where}", _moving(one)],
         lambda rows, one: _moved(_without(rows, one), one), moves=True),
    Verb("update of the key, if it is missing", lambda txn, one: txn.sql(_moving_missing(one)),
         lambda one: [_moving_missing(one)],
         lambda rows, one: rows if _there(rows, one) else _moved(rows, one), moves=True),
    Verb("merge that updates the key", lambda txn, one: txn.sql(_merge_move(one)),
         lambda one: [_merge_move(one)], _moved, looks=False, moves=True),
]  # fmt: skip
LOOKERS = [verb for verb in VERBS if verb.looks]
INSERTERS = [verb for verb in LOOKERS if not verb.moves]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with Warehouse.open(tmp_path_factory.mktemp("skew") / "wh", engine="local") as opened:
        opened.sql("CREATE DATABASE db")
        yield opened


def emptied(warehouse: Warehouse) -> None:
    warehouse.sql("DROP TABLE IF EXISTS db.t")
    warehouse.create_table("db.t", "id int, v string", partitioned_by=["p string"])


def stored(warehouse: Warehouse) -> list[Row]:
    rows = warehouse.table("db.t").to_arrow(["id", "v", "p"]).to_pylist()
    return sorted((row["id"], row["v"], row["p"]) for row in rows)


def by_python(verb: Verb, one: Place, txn: Transaction) -> None:
    verb.python(txn, one)


def by_sql(verb: Verb, one: Place, txn: Transaction) -> None:
    for text in verb.sql(one):
        txn.sql(text)


def commits(txn: Transaction) -> bool:
    try:
        txn.commit()
    except WriteConflict:
        return False
    return True


def conflict(first: Verb, second: Verb) -> bool:
    """Whether two that bring one new key conflict: each looked for it, or one looked and inserted
    it, and the other one gave a row this key."""
    pairs = [(first, second), (second, first)]
    return (first.looks and second.looks) or any(
        one.looks and not one.moves and other.moves for one, other in pairs
    )


_SOONEST = [
    ("insert", "upsert"), ("update of the key", "upsert"),
    ("merge that only inserts", "update of the key, if it is missing"),
]  # fmt: skip
PAIRS = sorted(product(VERBS, VERBS), key=lambda pair: (pair[0].name, pair[1].name) not in _SOONEST)


@pytest.mark.parametrize(
    "pair",
    few_then_more(PAIRS, len(_SOONEST)),
    ids=lambda pair: f"{pair[0].name} - {pair[1].name}",
)
def test_P51_two_at_once_leave_what_one_after_the_other_leaves(
    warehouse: Warehouse, pair: tuple[Verb, Verb]
) -> None:
    """In an empty table, in one with other rows, and in one that has the key."""
    first, second = pair
    emptied(warehouse)
    case = 0
    for there, (key, p) in product([False, True], [(0, "a"), (1, "a"), (0, "b")]):
        case += 10
        places = [Place(case, "a", "one"), Place(case + key, p, "two")]
        moved = [place for verb, place in zip((first, second), places, strict=True) if verb.moves]
        if moved:
            warehouse.table("db.t").insert([place.mover for place in moved])
        if there:
            warehouse.table("db.t").insert([Place(case, "a", "old").row])
        before = stored(warehouse)
        txns = [warehouse.transaction(), warehouse.transaction()]
        by_python(first, places[0], txns[0])
        by_sql(second, places[1], txns[1])
        committed = [commits(txn) for txn in txns]
        ran = [
            each
            for each, done in zip(zip((first, second), places, strict=True), committed, strict=True)
            if done
        ]
        possible = []
        for order in permutations(ran):
            rows = before
            for verb, place in order:
                rows = verb.model(rows, place)
            possible.append(sorted(rows))
        assert stored(warehouse) in possible, (there, places, committed)
        assert committed[0], "nobody was before it"
        if places[0].where != places[1].where:
            assert committed[1], (there, places, "they have different rows")
        elif not there:
            assert committed[1] != conflict(first, second)


_EVEN = [Place(id, "a", "even").row for id in range(2, 202, 2)]
_CHANGED = "WHEN MATCHED AND t.v <> s.v THEN UPDATE SET v = s.v"


def _merge_even(txn: Transaction) -> None:
    txn.table("db.t").merge(
        _EVEN, ON, when_matched_update={"id": "s.id", "v": "s.v"}, when_not_matched_insert="*"
    )


_BESIDE = [
    # whether the first of the hundred keys is new, the other statement, whether they conflict
    (False, _merge(Place(7, "a", "new"), MATCHED, MISSING), False),
    (False, "UPDATE db.t SET v = 'x' WHERE id = 4 AND p = 'b'", False),
    (True, _merge(Place(7, "a", "new"), _CHANGED, MISSING), False),
    (True, "UPDATE db.t SET id = 77 WHERE id = 0", False),
    (True, "UPDATE db.t SET id = 2 WHERE id = 0", True),
    (True, "UPDATE db.t SET v = 'x' WHERE id = 0", False),
    (True, "UPDATE db.t SET id = id + 2 WHERE id = 0", True),
]


@pytest.mark.parametrize("beside", few_then_more(_BESIDE, 1), ids=str)
def test_P51_other_keys_and_columns_do_not_conflict(
    warehouse: Warehouse, beside: tuple[bool, str, bool]
) -> None:
    """A MERGE of a hundred keys beside a statement that changes a row between them."""
    new, other, meets = beside
    emptied(warehouse)
    others = [Place(0, "a", "zero").row, Place(4, "b", "b").row]
    warehouse.table("db.t").insert([*_EVEN[new:], *others])
    txns = [warehouse.transaction(), warehouse.transaction()]
    _merge_even(txns[0])
    txns[1].sql(other)
    assert [commits(txn) for txn in txns] == [True, not meets]


@pytest.mark.parametrize("p", ["a", "b"])
@pytest.mark.parametrize("verb", INSERTERS, ids=lambda verb: verb.name)
def test_P51_who_looked_before_an_overwrite_does_not_insert_after_it(
    warehouse: Warehouse, verb: Verb, p: str
) -> None:
    emptied(warehouse)
    txn = warehouse.transaction()
    assert txn.table("db.t").count() == 0
    warehouse.table("db.t").overwrite([Place(1, "a", "new").row], "p=a")
    by_python(verb, Place(1, p, "late"), txn)
    assert commits(txn) is (p == "b")
    expected = [*[Place(1, "b", "late").stored] * (p == "b"), Place(1, "a", "new").stored]
    assert stored(warehouse) == expected


@pytest.mark.more
@pytest.mark.parametrize("verb", LOOKERS, ids=lambda verb: verb.name)
def test_P51_T40_a_single_statement_begins_again(
    warehouse: Warehouse, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks again at a newer snapshot, where the row is."""
    (text, *others), one = verb.sql(Place(1, "a", "late")), Place(1, "a", "first")
    if others:
        pytest.skip("it is no single statement")
    emptied(warehouse)
    rows = warehouse.table("db.t")
    rows.insert([place.mover for place in (one, Place(1, "a", "late")) if verb.moves])
    before = stored(warehouse)
    begin, attempts = warehouse.transaction, []

    def late(**how: Any) -> Transaction:
        txn = begin(**how)
        attempts.append(txn)
        if len(attempts) == 1:
            with begin() as other:
                by_sql(verb, one, other)
        return txn

    monkeypatch.setattr(warehouse, "transaction", late)
    warehouse.sql(text)
    assert len(attempts) == 2
    assert stored(warehouse) == sorted(verb.model(verb.model(before, one), Place(1, "a", "late")))
