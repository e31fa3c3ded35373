"""Reading cases and judging answers: what is wrong is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acid_platform.errors import NeedsSpark, WrongType
from tests.conformance.slt import PUBLISHED, Case, Rows, cases, check, parsed

TEXT = """\
# project: Ours
# case: one
# shows: how a case is written
statement ok
CREATE TABLE t (k int)

statement count 2
DELETE FROM t

statement error WrongType: .*price
INSERT INTO t VALUES ('x')

onlyif spark
query IT rowsort
SELECT *
FROM t
----
2 (empty)
1 a b
"""
ANSWERS: dict[str, Rows | int | Exception | None] = {
    "CREATE TABLE t (k int)": None,
    "DELETE FROM t": 2,
    "INSERT INTO t VALUES ('x')": WrongType("x does not fit price"),
    "SELECT *\nFROM t": [["1", "a  b"], ["2", "(empty)"]],
}


def case() -> Case:
    (only,) = parsed("ours.slt", TEXT)
    return only


def running(**changed: Rows | int | Exception | None) -> Callable[[str], Rows | int | None]:
    by_word = {sql.split()[0].lower(): answer for sql, answer in ANSWERS.items()} | changed

    def run(sql: str) -> Rows | int | None:
        answer = by_word[sql.split()[0].lower()]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return run


def test_a_case_is_read() -> None:
    read = case()
    assert (read.project, read.test, read.shows) == ("Ours", "one", "how a case is written")
    assert [record.line for record in read.records] == [4, 7, 10, 13]
    assert read.needs_spark


def test_the_right_answers_pass() -> None:
    check(case(), running(), dict, is_spark=True)
    check(case(), running(select=NeedsSpark("a join")), dict, is_spark=False)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"create": WrongType("no")}, "WrongType: no"),
        ({"delete": 3}, "changed 3 rows, not 2"),
        ({"insert": 1}, "did not raise WrongType"),
        ({"insert": WrongType("x does not fit t")}, "not WrongType: .*price"),
        ({"insert": NeedsSpark("WrongType: price")}, "raised NeedsSpark"),
        ({"select": [["1", "a b"]]}, r"answered \['1 a b'\]"),
        ({"select": 2}, "answered no rows"),
    ],
)
def test_a_wrong_answer_is_noticed(
    changed: dict[str, Rows | int | Exception], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check(case(), running(**changed), dict, is_spark=True)


def test_a_refused_statement_that_changed_a_row_is_noticed() -> None:
    states = iter([{"t": ["1"]}, {"t": ["1", "2"]}])
    with pytest.raises(AssertionError, match="was refused, but left"):
        check(case(), running(), lambda: next(states), is_spark=True)


def test_a_case_that_spark_alone_runs_has_to_be_refused_by_the_other_engine() -> None:
    with pytest.raises(AssertionError, match="did not raise NeedsSpark"):
        check(case(), running(), dict, is_spark=False)


@pytest.mark.parametrize(
    "text",
    [
        "# case: a\nquery I\nSELECT 1\n",
        "# case: a\nstatement fine\nSELECT 1\n",
        "# case: a\nstatement ok\nSELECT 1\n----\n1\n",
    ],
)
def test_a_line_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"ours\.slt:\d"):
        list(parsed("ours.slt", text))


def test_every_case_says_what_it_stands_for() -> None:
    found = cases(PUBLISHED)
    assert len(found) >= 150
    named = [(one.project, one.test) for one in found]
    assert len(set(named)) == len(named)
    for one in found:
        assert one.project and one.shows and one.records, one.test
        assert not (one.refused and one.differs), one.test
        errors = [record for record in one.records if record.error is not None]
        assert errors or not one.refused, f"{one.test} is refused by no statement"
