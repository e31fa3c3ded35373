"""The WHEN clauses of a MERGE and the counts it returns. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from acid_platform.errors import InvalidExpression


class MergeAction(Enum):
    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN [NOT] MATCHED [AND condition] THEN action; the first clause that applies is used.

    `values`: column → SQL over `t` and `s`; None in an INSERT means all columns by name.
    """

    action: MergeAction
    values: Mapping[str, str] | None = None
    condition: str | None = None

    def __post_init__(self) -> None:
        """Raises InvalidExpression for a condition that is not text, such as True."""
        if self.condition is not None and not isinstance(self.condition, str):
            raise InvalidExpression(
                f"the condition of WHEN … THEN {self.action.name} is {self.condition!r}: write SQL"
                " text such as 's.gone', or 'true' for all rows"
            )


def merge_clauses(
    update: Mapping[str, str] | None,
    delete: str | None,
    insert: Mapping[str, str] | Literal["*"] | None,
) -> Iterator[MergeClause]:
    """The clauses of the short form: a row that the delete condition accepts is not updated."""
    if delete is not None:
        yield MergeClause(MergeAction.DELETE, None, delete)
    if update is not None:
        yield MergeClause(MergeAction.UPDATE, update)
    if insert is not None:
        yield MergeClause(MergeAction.INSERT, None if insert == "*" else insert)


def require_reachable(clauses: Sequence[MergeClause]) -> None:
    """Raises InvalidExpression for a clause that no row reaches: one before it, for the same rows,
    has no condition."""
    unconditional: dict[bool, MergeClause] = {}
    for clause in clauses:
        inserts = clause.action is MergeAction.INSERT
        if inserts in unconditional:
            words = f"WHEN {'NOT ' if inserts else ''}MATCHED"
            raise InvalidExpression(
                f"MERGE: {words} THEN {clause.action.name} is never reached, since {words} THEN"
                f" {unconditional[inserts].action.name} before it takes every row; give that one a"
                " condition, or leave one out"
            )
        if clause.condition is None:
            unconditional[inserts] = clause


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Rows that a MERGE changed."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0
