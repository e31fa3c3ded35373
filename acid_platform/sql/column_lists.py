"""The lists of columns of CREATE TABLE, CREATE VIEW, ADD COLUMNS and CHANGE.

Comments are taken out, so that what is left is what `layout.types` parses: names and types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from acid_platform.errors import InvalidExpression
from acid_platform.sql.split_dml import Parts
from acid_platform.sql.text import depth_change, tokens_of, word

_ANGLES = {TokenType.LT: 1, TokenType.GT: -1}


@dataclass(frozen=True, slots=True)
class ColumnList:
    """`text`: the columns as they were written, without their comments."""

    text: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)
    """By the names of the columns, in lower case."""

    @classmethod
    def of(cls, text: str) -> ColumnList:
        """Raises InvalidExpression."""
        columns: list[str] = []
        comments: dict[str, str] = {}
        for item in _items(text):
            place = _first(item.tokens, "COMMENT")
            if place is None:
                columns.append(item.rest())
                continue
            item.at = place + 1
            if not item.text_comes():
                raise InvalidExpression(f"not Hive SQL: COMMENT needs a text {item.here}")
            comments[str(item.tokens[0].text).lower()] = str(item.tokens[item.at].text)
            item.at += 1
            columns.append(f"{item.slice(0, place)} {item.rest()}".rstrip())
        return cls(", ".join(columns), comments)


def _items(text: str) -> Iterator[Parts]:
    """What stands between the commas outside of parentheses and of types such as `map<…>`."""
    tokens = tokens_of(text)
    start = 0
    for number, (token, outside) in enumerate(_depths(tokens)):
        if outside and token.token_type is TokenType.COMMA:
            yield Parts(text, tokens[start:number])
            start = number + 1
    yield Parts(text, tokens[start:])


def _first(tokens: Sequence[Token], searched: str) -> int | None:
    """The place of a word behind the name, outside of parentheses and types; None without it."""
    places = (
        number
        for number, (_, outside) in enumerate(_depths(tokens))
        if number and outside and word(tokens, number) == searched
    )
    return next(places, None)


def _depths(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool]]:
    """Each token, and whether it stands outside of parentheses and angle brackets."""
    depth = angles = 0
    for token in tokens:
        depth += depth_change(token)
        angles += _ANGLES.get(token.token_type, 0) if not depth else 0
        yield token, not depth and not angles
