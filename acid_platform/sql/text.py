"""The text of a statement as its user wrote it, its parts, and edits of it.

An engine gets this text, never one that is generated from a tree: what a parser makes of a text is
only used to understand it, e.g. which tables it names and where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import DialectType
from sqlglot.errors import ParseError, SqlglotError

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.sql_text import canonical, sql_string
from acid_platform.layout.types import meant_type
from acid_platform.predicates import analysis
from acid_platform.predicates.grammar import SparkSql
from acid_platform.sql.time_travel import mark, with_words_of_sqlglot

DIALECT = SparkSql


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression; nobody changes `tree`, whose nodes know their places in `text`."""

    text: str
    tree: exp.Expr = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT without side effects; nobody changes `tree`.

    Each table of `tree` has a Place in its `meta`, and the name of a table that is read as of the
    past is marked (see `time_travel`). `momentary`: CURRENT_TIMESTAMP says as of when one of them
    is read, so the text means another past each time.
    """

    text: str
    tree: exp.Query = field(compare=False, repr=False)
    momentary: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table stands in the text of its query, with its AS OF; from `start` to `stop`.

    `alias`: where an alias would stand; None if the table has one.
    """

    start: int
    stop: int
    alias: int | None


@dataclass(frozen=True, slots=True)
class Edit:
    """The characters from `start` to `stop` of a text become `text`."""

    start: int
    stop: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits, which don't overlap; those at one place apply in their order."""
    parts, end = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.stop)):
        assert edit.start >= end
        parts += [text[end : edit.start], edit.text]
        end = edit.stop
    return "".join((*parts, text[end:]))


_LONGEST_NUMBER = 1000
"""Characters: Python takes no whole number of more than 4,300 digits."""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, with their places in it. Raises InvalidExpression."""
    try:
        tokens = sqlglot.tokenize(text, dialect=DIALECT)
    except SqlglotError as error:
        raise InvalidExpression(f"not Hive SQL: {error}") from error
    for token in tokens:
        if token.token_type is TokenType.NUMBER and len(token.text) > _LONGEST_NUMBER:
            raise InvalidExpression(
                f"a number of {len(token.text):,} characters is of no type; write a shorter one"
            )
    return tokens


def query(text: str) -> Query:
    """A query, which only reads.

    Raises InvalidExpression if it can't be parsed, UnsupportedStatement if it is no query.
    """
    last = _query(text)
    return _query.__wrapped__(text) if last.momentary else last


@lru_cache(256)
def _query(text: str) -> Query:
    text = _with_offset(canonical(text))
    tokens = tokens_of(text)
    _refuse_samples(tokens)
    understood = with_words_of_sqlglot(text, tokens)
    tree = parsed(understood)
    if edits := [*_grouping_ids(tree)]:
        return _query.__wrapped__(edited(text, edits))
    if not isinstance(tree, exp.Query) or not (tree.find(exp.Select) or tree.find(exp.Values)):
        raise UnsupportedStatement(f"{text!r} is not supported here; write a SELECT")
    if tree.find(exp.QueryTransform):
        raise UnsupportedStatement(
            "SELECT TRANSFORM is not supported; compute rows in Python from"
            " wh.sql(query).to_pandas(), and call table.insert"
        )
    changing = tree.find(exp.Into, exp.Insert)
    if changing is not None:
        raise UnsupportedStatement(
            f"a SELECT with {changing.key.upper()} does more than read; leave that part out"
        )
    _locate(tree, tokens_of(understood))
    return Query(text, tree, momentary=mark(tree))


_LIMIT = re.compile(r"\blimit\s+\d+\s*,", re.IGNORECASE)


def _with_offset(text: str) -> str:
    """The text with `LIMIT 5 OFFSET 2` for Hive's `LIMIT 2, 5`."""
    if not _LIMIT.search(text):
        return text
    tokens = tokens_of(text)
    edits = []
    for number in range(len(tokens) - 3):
        kinds = [token.token_type for token in tokens[number + 1 : number + 4]]
        if word(tokens, number) == "LIMIT" and kinds == _TWO_NUMBERS:
            skipped, _, taken = tokens[number + 1 : number + 4]
            two = f"{taken.text} OFFSET {skipped.text}"
            edits.append(Edit(skipped.start, taken.end + 1, two))
    return edited(text, edits)


def _refuse_samples(tokens: Sequence[Token]) -> None:
    """Raises UnsupportedStatement for TABLESAMPLE (BUCKET …), which Spark takes for a random part
    of the rows: `BUCKET 3 OUT OF 4` for three quarters of them; and for a sample by size."""
    for number in range(len(tokens)):
        if word(tokens, number) != "TABLESAMPLE":
            continue
        if word(tokens, number + 2) == "BUCKET":
            raise UnsupportedStatement(
                "TABLESAMPLE (BUCKET x OUT OF y) is not supported; for one of y parts write WHERE"
                " pmod(hash(column), y) = x - 1, for a random one TABLESAMPLE (n PERCENT)"
            )
        if re.match(r"\d+[BKMG]\b", word(tokens, number + 2) + word(tokens, number + 3)):
            raise UnsupportedStatement(
                "TABLESAMPLE by size is not supported; write (n PERCENT) or (n ROWS)"
            )


def _grouping_ids(tree: exp.Expr) -> Iterator[Edit]:
    """The edits that put `grouping_id()` in the place of Hive's GROUPING__ID.

    Both number the groups alike: the first column is the highest bit, which is 1 if the group has
    all values of it.
    """
    for column in tree.find_all(exp.Column):
        if column.name.upper() != "GROUPING__ID" or len(column.parts) > 1:
            continue
        select = column.find_ancestor(exp.Select)
        if select is not None and select.args.get("group"):
            shown = column.parent is select and column.arg_key == "expressions"
            yield Edit(*span(column.this), f"grouping_id(){' AS grouping__id' if shown else ''}")


CURRENT_DATABASE = (exp.CurrentDatabase, exp.CurrentSchema)


def with_database(text: str, tree: exp.Expr, database: str) -> Iterator[Edit]:
    """The edits that put the session's database in the place of `current_database()`, also in the
    tree; engines know no databases."""
    calls = [*tree.find_all(*CURRENT_DATABASE)]
    tokens = tokens_of(text) if calls else []
    at = {token.start: number for number, token in enumerate(tokens)}
    for call in calls:
        first, last = span(call)
        if word(tokens, at[first] + 1) == "(":
            last = tokens[closing(tokens, at[first] + 1)].end + 1
        shown = isinstance(call.parent, exp.Select) and call.arg_key == "expressions"
        name = f" AS `{text[first:last].lower()}`" if shown else ""
        yield Edit(first, last, f"{sql_string(database)}{name}")
        call.replace(exp.Literal.string(database))


def expression(text: str) -> Expression:
    """An expression. Raises InvalidExpression if it can't be parsed."""
    text = _with_offset(canonical(text))
    try:
        return Expression(text, analysis.parsed(text))
    except InvalidExpression:
        return Expression(text, parsed(text, exp.Condition))  # its error says where


def parsed(
    text: str, into: type[exp.Expr] | None = None, dialect: DialectType = DIALECT
) -> exp.Expr:
    """What sqlglot makes of a text. Raises InvalidExpression."""
    try:
        if into is None:
            return sqlglot.parse_one(text, dialect=dialect)
        return sqlglot.parse_one(text, dialect=dialect, into=into)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        there = str(first.get("highlight", ""))
        types = dialect is not DIALECT or "TYPE" in first.get("description", "")
        near = meant_type(there.lower()) if types else None
        raise InvalidExpression(
            f"not Hive SQL: {first.get('description', error)} near {there!r},"
            f" line {first.get('line', 1)} column {first.get('col', 1)}"
            + (f"; did you mean {near}?" if near else "")
        ) from error
    except SqlglotError as error:
        raise InvalidExpression(f"not Hive SQL: {error}") from error


def span(node: exp.Expr) -> tuple[int, int]:
    """Where an identifier or a star stands. Raises UnsupportedStatement if the parser lost it."""
    try:
        return int(node.meta["start"]), int(node.meta["end"]) + 1
    except KeyError as error:
        raise UnsupportedStatement(
            f"the place of {node.sql(DIALECT)!r} in the statement is not known; give each table an"
            " alias, and name columns by it"
        ) from error


def place(table: exp.Table) -> Place:
    """Where a table stands in the text of its query."""
    where: Place = table.meta["place"]
    return where


# --- finding the places of tables -----------------------------------------------------------------


def _locate(tree: exp.Expr, tokens: Sequence[Token]) -> None:
    """Gives each named table of the tree its Place."""
    at = {token.start: number for number, token in enumerate(tokens)}
    for table in tree.find_all(exp.Table):
        if table.find_ancestor(exp.Hint):
            continue
        if isinstance(table.this, exp.Identifier):
            start, last = span(table.parts[0])[0], at[span(table.parts[-1])[0]]
        elif isinstance(table.this, exp.Anonymous) and table.this.name.lower() == "table_changes":
            start = span(table.this)[0]
            last = closing(tokens, at[start] + 1)
        elif table.this.name.lower() == "identifier":
            raise UnsupportedStatement("IDENTIFIER(…) in FROM is not supported; name the table")
        else:
            continue  # a function that makes rows, which Spark knows
        if table.args.get("version") is not None:
            last = _end_of_version(tokens, last)
        after = last
        if word(tokens, after + 1) == "TABLESAMPLE":
            after = closing(tokens, after + 2)
            if word(tokens, after + 1) == "REPEATABLE":
                after = closing(tokens, after + 2)
        alias = None if table.alias else tokens[after].end + 1
        table.meta["place"] = Place(start, tokens[last].end + 1, alias)


def word(tokens: Sequence[Token], number: int) -> str:
    """The token in upper case; empty at the end, and for names in backticks and literals."""
    if number >= len(tokens) or tokens[number].token_type in _NO_WORDS:
        return ""
    return str(tokens[number].text.upper())


_NO_WORDS = frozenset(
    {TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING}
)
_TWO_NUMBERS = [TokenType.NUMBER, TokenType.COMMA, TokenType.NUMBER]
_OPENING = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.L_BRACE: 1}
_CLOSING = {TokenType.R_PAREN: 1, TokenType.R_BRACKET: 1, TokenType.R_BRACE: 1}


def depth_change(token: Token) -> int:
    """1 for an opening parenthesis or bracket, -1 for a closing one, else 0."""
    return _OPENING.get(token.token_type, 0) - _CLOSING.get(token.token_type, 0)


def closing(tokens: Sequence[Token], opening: int) -> int:
    """The number of the token that closes what token `opening` opens. Raises InvalidExpression."""
    depth = 0
    for number in range(opening, len(tokens)):
        depth += depth_change(tokens[number])
        if depth == 0:
            return number
    raise InvalidExpression("not Hive SQL: a parenthesis is not closed")


def _end_of_version(tokens: Sequence[Token], name: int) -> int:
    """The last token of `FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP - INTERVAL 1 DAY` after a name.

    `time_travel` has the list of what is allowed there.
    """
    number = name + 1
    while number < len(tokens) and word(tokens, number) != "OF":
        number += 1
    number += 1
    while number < len(tokens):
        if word(tokens, number) == "INTERVAL":
            number += 2  # the number, then its unit
        elif tokens[number].token_type is TokenType.L_PAREN:
            number = closing(tokens, number)
        elif number + 1 < len(tokens) and tokens[number].token_type not in _NO_WORDS:
            following = tokens[number + 1]
            if following.token_type is TokenType.L_PAREN:
                number = closing(tokens, number + 1)
            elif following.token_type is TokenType.STRING and word(tokens, number).isalpha():
                number += 1  # TIMESTAMP '…'
        if word(tokens, number + 1) not in ("+", "-"):
            return number
        number += 2
    return len(tokens) - 1  # `mark` refuses it


# --- reading a statement from the left ----------------------------------------------------------

_QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE")


@dataclass(slots=True)
class Parts:
    """Reads a statement from the left; `at` is the number of the next token."""

    text: str
    tokens: Sequence[Token] = field(default_factory=list)
    at: int = 0

    @classmethod
    def of(cls, text: str) -> Parts:
        return cls(text, tokens_of(text))

    @property
    def ended(self) -> bool:
        return self.at >= len(self.tokens)

    def comes(self, *words: str) -> bool:
        """Whether these words come next."""
        return all(word(self.tokens, self.at + i) == expected for i, expected in enumerate(words))

    def text_comes(self, behind: int = 0) -> bool:
        """Whether a text in quotes comes next, or so many tokens later."""
        tokens = self.tokens[self.at + behind :]
        return bool(tokens) and tokens[0].token_type is TokenType.STRING

    def skip(self, *words: str) -> bool:
        """Goes behind these words if they come next."""
        if self.comes(*words):
            self.at += len(words)
            return True
        return False

    def need(self, words: str, what: str) -> None:
        if not self.skip(*words.split()):
            raise InvalidExpression(f"not Hive SQL: {what} needs {words} {self.here}")

    @property
    def here(self) -> str:
        """The place of the next token, for messages."""
        if self.ended:
            return "at its end"
        token = self.tokens[self.at]
        return f"before {self.text[token.start : token.end + 1]!r}, line {token.line}"

    def name(self) -> tuple[str, ...]:
        """A name of one or more parts, in lower case."""
        parts = [self._name_part()]
        while self.tokens[self.at : self.at + 1] and (
            self.tokens[self.at].token_type is TokenType.DOT
        ):
            self.at += 1
            parts.append(self._name_part())
        return tuple(parts)

    def _name_part(self) -> str:
        token = None if self.ended else self.tokens[self.at]
        quoted = token is not None and token.token_type is TokenType.IDENTIFIER
        if token is None or not (quoted or token.text.replace("_", "a").isalnum()):
            raise InvalidExpression(f"not Hive SQL: a name is needed {self.here}")
        self.at += 1
        return str(token.text).lower()

    def alias(self, *following: str) -> str | None:
        """An alias, unless the statement ends or one of the words that follow it comes."""
        if self.skip("AS"):
            return self._name_part()
        if self.ended or any(self.comes(words) for words in following):
            return None
        return self._name_part()

    def until(self, *words: str) -> str:
        """The text before the first of these words outside of parentheses, or to the end."""
        start = self.at
        self.at = self.find(*words)
        return self.slice(start, self.at)

    def find(self, *words: str) -> int:
        """The number of the first token that is one of these words, outside of parentheses and of
        CASE … END; the number of tokens if there is none."""
        depth = cases = 0
        for number in range(self.at, len(self.tokens)):
            own = word(self.tokens, number)
            named = number > 0 and self.tokens[number - 1].token_type is TokenType.DOT
            if not depth and not cases and not named and own in words:
                return number
            depth += depth_change(self.tokens[number])
            if own == "CASE" and not named:
                cases += 1
            elif own == "END" and cases and not named:
                cases -= 1
        return len(self.tokens)

    def has(self, *words: str) -> bool:
        """Whether one of these words comes, outside of parentheses."""
        return self.find(*words) < len(self.tokens)

    def slice(self, start: int, stop: int) -> str:
        """The text from one token to another, without the latter."""
        if start >= stop:
            return ""
        return self.text[self.tokens[start].start : self.tokens[stop - 1].end + 1]

    def rest(self) -> str:
        start, self.at = self.at, len(self.tokens)
        return self.slice(start, self.at)

    def in_parentheses(self) -> list[str]:
        """The texts between commas in the parentheses that come next."""
        end = closing(self.tokens, self.at)
        inner = Parts(self.text, self.tokens[:end], self.at + 1)
        self.at = end + 1
        return inner.between_commas()

    def between_commas(self) -> list[str]:
        texts = [] if self.ended else [self.until(",")]
        while self.skip(","):
            texts.append(self.until(","))
        return texts


def is_query(parts: Parts) -> bool:
    """Whether a query comes next."""
    return any(parts.comes(words) for words in _QUERY_WORDS)


def selected(text: str) -> str:
    """A query; `TABLE t` is another word for `SELECT * FROM t`."""
    parts = Parts.of(text)
    return f"SELECT * FROM {parts.rest()}" if parts.skip("TABLE") else text
