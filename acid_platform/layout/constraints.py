"""Constraints of a table's columns: what rows have to fulfil, and what is only declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from acid_platform.layout.sql_text import quoted


class ConstraintKind(Enum):
    """The words by which SQL declares a constraint."""

    NOT_NULL = "NOT NULL"
    DEFAULT = "DEFAULT"
    CHECK = "CHECK"
    PRIMARY_KEY = "PRIMARY KEY"
    FOREIGN_KEY = "FOREIGN KEY"
    UNIQUE = "UNIQUE"


DECLARED_ONLY = (ConstraintKind.PRIMARY_KEY, ConstraintKind.FOREIGN_KEY, ConstraintKind.UNIQUE)
"""Kinds that are shown to planners and people, and that no write is checked for, as in Hive."""
OF_ROWS = (ConstraintKind.NOT_NULL, ConstraintKind.CHECK)
"""Kinds that each row of an enabled constraint fulfils."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint; make one with a function of this class, such as `Constraint.check("n > 0")`.

    `text`: the SQL of a CHECK's condition or of a DEFAULT. Names of columns are in lower case.
    """

    name: str
    """Empty: one is made from the names of the table and the columns."""
    kind: ConstraintKind
    columns: tuple[str, ...] = ()
    text: str = ""
    enabled: bool = True
    """Whether writes are checked; never for PRIMARY KEY, FOREIGN KEY and UNIQUE."""
    rely: bool = False
    """Whether planners may take it for true although nobody checks it."""
    parent: str = ""
    """The table `db.t` that a FOREIGN KEY refers to."""
    parent_columns: tuple[str, ...] = ()

    @classmethod
    def not_null(cls, column: str, name: str = "") -> Constraint:
        return cls(name, ConstraintKind.NOT_NULL, (column.lower(),))

    @classmethod
    def check(cls, condition: str, name: str = "") -> Constraint:
        """No row for which the condition is false; NULL is not false."""
        return cls(name, ConstraintKind.CHECK, text=condition)

    @classmethod
    def default(cls, column: str, value: str, name: str = "") -> Constraint:
        """`value`: SQL of a literal, a CAST of one, or CURRENT_DATE, CURRENT_TIMESTAMP."""
        return cls(name, ConstraintKind.DEFAULT, (column.lower(),), value)

    @property
    def of_rows(self) -> bool:
        """Whether rows are checked for it."""
        return self.enabled and self.kind in OF_ROWS

    @property
    def condition(self) -> str:
        """SQL of what is not false for any row, of a kind of OF_ROWS."""
        if self.kind is ConstraintKind.NOT_NULL:
            return f"{quoted(self.columns[0])} IS NOT NULL"
        return self.text

    def __str__(self) -> str:
        """As SQL declares it for the table, without its name."""
        words = self.kind.value
        if self.kind is ConstraintKind.CHECK:
            return f"{words} ({self.text})"
        names = ", ".join(map(quoted, self.columns))
        if self.kind is ConstraintKind.DEFAULT:
            return f"{words} {self.text}"
        if self.kind is ConstraintKind.FOREIGN_KEY:
            parent = ".".join(map(quoted, self.parent.split(".")))
            others = ", ".join(map(quoted, self.parent_columns))
            return f"{words} ({names}) REFERENCES {parent} ({others})"
        return f"{words} ({names})"


@dataclass(frozen=True, slots=True)
class RowChecks:
    """What a statement has to know of a table's constraints. `table` is for messages."""

    table: str = ""
    constraints: tuple[Constraint, ...] = ()
    """Those of which each row is checked."""
    defaults: dict[str, str] = field(default_factory=dict)
    """SQL of the value of a column that the rows leave out, in the column's type."""

    def violation(self, constraint: Constraint) -> str:
        """What is wrong with a row, on one line, for messages; its values follow."""
        declared = " ".join(str(constraint).split())
        return f"constraint {constraint.name} of {self.table}, {declared}, is violated by a row"


NO_CHECKS = RowChecks()
