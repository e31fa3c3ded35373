"""The WHEN clauses of a MERGE and the counts it returns. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from acid_platform.base.arguments import require_texts
from acid_platform.errors import InvalidExpression

VALUES = "a dict of columns and SQL texts, such as {'v': 's.v'}"


class MergeAction(Enum):
    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN [NOT] MATCHED [BY SOURCE] [AND condition] THEN action; the first clause that applies to
    a row is used.

    `values`: column, or field of a struct such as `s.a` → SQL over `t` and `s`; None in an UPDATE
    or INSERT means all columns by name. `by_source`: it is for the table's rows that no row of the
    source matches, and its SQL reads `t` alone.
    """

    action: MergeAction
    values: Mapping[str, str] | None = None
    condition: str | None = None
    by_source: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidExpression for a condition that is not text, such as True, and for what
        needs a row of the source where there is none."""
        require_texts("values", self.values, VALUES, InvalidExpression)
        if self.condition is not None and not isinstance(self.condition, str):
            raise InvalidExpression(
                f"the condition of WHEN … THEN {self.action.name} is {self.condition!r}: write SQL"
                " text such as 's.gone', or 'true' for all rows"
            )
        if self.by_source and (
            self.action is MergeAction.INSERT
            or (self.action is MergeAction.UPDATE and self.values is None)
        ):
            what = "INSERT" if self.action is MergeAction.INSERT else "UPDATE SET *"
            raise InvalidExpression(
                f"WHEN NOT MATCHED BY SOURCE THEN {what} has no row of the source to read; use"
                " DELETE, or UPDATE SET column = value"
            )

    @property
    def takes_all(self) -> bool:
        """Whether it takes all columns of the source, by name."""
        return self.values is None and self.action is not MergeAction.DELETE

    @property
    def rows(self) -> str:
        """The rows that it is for, as SQL says it."""
        if self.by_source:
            return "NOT MATCHED BY SOURCE"
        return "NOT MATCHED" if self.action is MergeAction.INSERT else "MATCHED"


def merge_clauses(
    update: Mapping[str, str] | Literal["*"] | None,
    delete: str | None,
    insert: Mapping[str, str] | Literal["*"] | None,
) -> Iterator[MergeClause]:
    """The clauses of the short form: a row that the delete condition accepts is not updated."""
    if delete is not None:
        yield MergeClause(MergeAction.DELETE, None, delete)
    for name, values in (("when_matched_update", update), ("when_not_matched_insert", insert)):
        if values != "*":
            require_texts(name, values, f"'*', or {VALUES}", InvalidExpression)
    if update is not None:
        yield MergeClause(MergeAction.UPDATE, None if update == "*" else update)
    if insert is not None:
        yield MergeClause(MergeAction.INSERT, None if insert == "*" else insert)


def require_reachable(clauses: Sequence[MergeClause]) -> None:
    """Raises InvalidExpression for a clause that no row reaches: one before it, for the same rows,
    has no condition."""
    unconditional: dict[str, MergeClause] = {}
    for clause in clauses:
        if clause.rows in unconditional:
            words = f"WHEN {clause.rows}"
            raise InvalidExpression(
                f"MERGE: {words} THEN {clause.action.name} is never reached, since {words} THEN"
                f" {unconditional[clause.rows].action.name} before it takes every row; give that"
                " one a condition, or leave one out"
            )
        if clause.condition is None:
            unconditional[clause.rows] = clause


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """Rows that a MERGE changed."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0
