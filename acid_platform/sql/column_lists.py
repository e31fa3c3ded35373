"""The lists of columns of CREATE TABLE, CREATE VIEW, ADD COLUMNS and CHANGE.

Comments and constraints are taken out, so that what is left is what `layout.types` parses: names
and types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import Token, TokenType

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.constraints import DECLARED_ONLY, Constraint, ConstraintKind
from acid_platform.sql.split_dml import Parts
from acid_platform.sql.text import depth_change, expression, tokens_of, word

_ANGLES = {TokenType.LT: 1, TokenType.GT: -1}
_OF_TABLES = ("CHECK", "PRIMARY KEY", "UNIQUE", "FOREIGN KEY", "NOT")
"""The words that begin a constraint of the table, in an item of its own."""
_OPTIONS = ("ENABLE", "ENFORCED", "DISABLE", "VALIDATE", "NOVALIDATE", "RELY", "NORELY")
_DETAILS = (
    *("COMMENT", "CONSTRAINT", "NOT", "DEFAULT", "CHECK", "PRIMARY KEY", "UNIQUE", "REFERENCES"),
    *_OPTIONS,
)
"""The words that may follow the type of a column."""


@dataclass(frozen=True, slots=True)
class ColumnList:
    """`text`: the columns as they were written, without their comments and constraints."""

    text: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)
    """By the names of the columns, in lower case."""
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, text: str) -> ColumnList:
        """Raises InvalidExpression, UnsupportedStatement for a constraint that is not supported."""
        columns: list[str] = []
        comments: dict[str, str] = {}
        constraints: list[Constraint] = []
        for item in _items(text):
            if _is_constraint(item):
                constraints.append(_constraint(item, None))
                _require_end(item)
                continue
            item.at = _first(item.tokens, _DETAILS)
            columns.append(item.slice(0, item.at))
            name = str(item.tokens[0].text).lower() if item.tokens else ""
            while not item.ended:
                if item.skip("COMMENT"):
                    if not item.text_comes():
                        raise InvalidExpression(f"not Hive SQL: COMMENT needs a text {item.here}")
                    comments[name] = str(item.tokens[item.at].text)
                    item.at += 1
                else:
                    constraints.append(_constraint(item, name))
        return cls(", ".join(columns), comments, tuple(constraints))


def constraint_of(text: str) -> Constraint:
    """A constraint of a table, such as `CONSTRAINT c CHECK (n > 0)`.

    Raises InvalidExpression, UnsupportedStatement.
    """
    parts = Parts.of(text)
    constraint = _constraint(parts, None)
    _require_end(parts)
    return constraint


def _is_constraint(item: Parts) -> bool:
    """Whether an item is a constraint of the table, and no column of that name."""
    begins = 2 if item.comes("CONSTRAINT") else 0
    kind = word(item.tokens, begins)
    return kind in _OF_TABLES and (begins > 0 or word(item.tokens, 1) == "(")


def _require_end(parts: Parts) -> None:
    if not parts.ended:
        raise InvalidExpression(f"not Hive SQL: the constraint ends {parts.here}")


def _constraint(parts: Parts, column: str | None) -> Constraint:
    """The constraint that comes next: of a column, or of the table (None)."""
    name = parts.name()[0] if parts.skip("CONSTRAINT") else ""
    columns = (column,) if column else ()
    if parts.skip("NOT", "NULL"):
        constraint = Constraint(name, ConstraintKind.NOT_NULL, columns or _names(parts))
    elif parts.skip("CHECK"):
        if not parts.comes("("):
            raise InvalidExpression(f"not Hive SQL: CHECK needs ( {parts.here}")
        (condition,) = parts.in_parentheses() or ("",)
        constraint = Constraint(name, ConstraintKind.CHECK, text=expression(condition).text)
    elif column and parts.skip("DEFAULT"):
        start = parts.at
        parts.at = _first(parts.tokens, _DETAILS, start)
        text = expression(parts.slice(start, parts.at)).text
        constraint = Constraint(name, ConstraintKind.DEFAULT, columns, text)
    elif parts.skip("PRIMARY KEY"):
        constraint = Constraint(name, ConstraintKind.PRIMARY_KEY, columns or _names(parts))
    elif parts.skip("UNIQUE"):
        constraint = Constraint(name, ConstraintKind.UNIQUE, columns or _names(parts))
    elif column and parts.comes("REFERENCES"):
        constraint = _reference(parts, name, columns)
    elif not column and parts.skip("FOREIGN KEY"):
        constraint = _reference(parts, name, _names(parts))
    else:
        raise InvalidExpression(
            f"not Hive SQL: a column has a name, a type, COMMENT and constraints; not understood"
            f" {parts.here}"
        )
    return _with_options(parts, constraint)


def _reference(parts: Parts, name: str, columns: tuple[str, ...]) -> Constraint:
    parts.need("REFERENCES", "FOREIGN KEY")
    parent = ".".join(parts.name())
    return Constraint(
        name, ConstraintKind.FOREIGN_KEY, columns, parent=parent, parent_columns=_names(parts)
    )


def _names(parts: Parts) -> tuple[str, ...]:
    if not parts.comes("("):
        raise InvalidExpression(f"not Hive SQL: a constraint needs its columns in ( ) {parts.here}")
    return tuple(Parts.of(one).name()[0] for one in parts.in_parentheses())


def _with_options(parts: Parts, constraint: Constraint) -> Constraint:
    """The constraint with what ENABLE, DISABLE, RELY and so on say of it."""
    enabled, rely = True, False
    while not parts.ended:
        if parts.skip("NOT", "ENFORCED") or parts.skip("DISABLE"):
            enabled = False
        elif parts.skip("ENABLE") or parts.skip("ENFORCED"):
            enabled = True
        elif parts.skip("RELY"):
            rely = True
        elif parts.skip("NORELY") or parts.skip("NOVALIDATE"):
            pass
        elif parts.skip("VALIDATE"):
            if constraint.kind in DECLARED_ONLY:
                raise UnsupportedStatement(
                    f"{constraint}: VALIDATE is not supported; write DISABLE NOVALIDATE"
                )
        else:
            break
    return replace(constraint, enabled=enabled, rely=rely)


def _items(text: str) -> Iterator[Parts]:
    """What stands between the commas outside of parentheses and of types such as `map<…>`."""
    tokens = tokens_of(text)
    start = 0
    for number, (token, outside) in enumerate(_depths(tokens)):
        if outside and token.token_type is TokenType.COMMA:
            yield Parts(text, tokens[start:number])
            start = number + 1
    yield Parts(text, tokens[start:])


def _first(tokens: Sequence[Token], words: Sequence[str], start: int = 1) -> int:
    """The place of the first of these words from `start` on, outside of parentheses and types; the
    number of tokens if there is none."""
    places = (
        number
        for number, (_, outside) in enumerate(_depths(tokens))
        if number >= start and outside and word(tokens, number) in words
    )
    return next(places, len(tokens))


def _depths(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool]]:
    """Each token, and whether it stands outside of parentheses and angle brackets."""
    depth = angles = 0
    for token in tokens:
        depth += depth_change(token)
        angles += _ANGLES.get(token.token_type, 0) if not depth else 0
        yield token, not depth and not angles
