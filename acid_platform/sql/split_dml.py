"""Dividing INSERT, UPDATE, DELETE, TRUNCATE and LOAD DATA into the parts that their user wrote.

Only words and parentheses are looked at; each part is then parsed alone. So no part is generated
anew, and what follows a part that can be parsed is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import Token, TokenType

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.sql.partition_specs import PartitionSpec
from acid_platform.sql.statements import (
    Assignment,
    Delete,
    Insert,
    LoadData,
    MultiInsert,
    Truncate,
    Update,
    ValuesRows,
)
from acid_platform.sql.text import (
    Expression,
    Query,
    closing,
    depth_change,
    expression,
    query,
    tokens_of,
    word,
)

_NOT_WITH_INSERT = {
    "BY NAME": "name the columns: INSERT INTO t (b, a) SELECT …",
    "REPLACE": "DELETE the rows that go in the same transaction, or use INSERT OVERWRITE",
}
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
        return all(word(self.tokens, self.at + i) == one for i, one in enumerate(words))

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
        if self.ended or any(self.comes(one) for one in following):
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
    return any(parts.comes(one) for one in _QUERY_WORDS)


def insert(text: str) -> Insert:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    return _insert(parts, parts.until("INSERT") + "\n" if parts.comes("WITH") else "")


def insert_from(text: str) -> Insert | MultiInsert:
    """`[WITH …] FROM … INSERT … SELECT … [INSERT …]`. Raises as `insert`."""
    parts = Parts.of(text)
    with_clause = parts.until("FROM") + "\n" if parts.comes("WITH") else ""
    members = parts.until("INSERT") + "\n"
    inserts = []
    while not parts.ended:
        start = parts.at
        parts.need("INSERT", members.strip())
        parts.until("INSERT")
        branch = Parts.of(parts.slice(start, parts.at))
        inserts.append(_insert(branch, with_clause + members, selects=True))
    if len(inserts) == 1:
        return inserts[0]
    rows = query(f"{with_clause}SELECT * {members}")
    return MultiInsert(inserts[0].table, rows, tuple(inserts))


def _insert(parts: Parts, before: str, selects: bool = False) -> Insert:
    """One INSERT, whose query begins with `before`; `selects`: only a SELECT without a FROM of its
    own may follow."""
    parts.need("INSERT", "this")
    overwrite = parts.skip("OVERWRITE")
    what = "INSERT OVERWRITE" if overwrite else "INSERT"
    if not overwrite:
        parts.need("INTO", what)
    if parts.comes("LOCAL", "DIRECTORY") or (parts.comes("DIRECTORY") and parts.text_comes(1)):
        raise UnsupportedStatement(
            f"{what} DIRECTORY is not supported; take the rows by wh.sql('SELECT …').to_arrow(),"
            " and write them with pyarrow or another library"
        )
    parts.skip("TABLE")
    table = ".".join(changed_table(parts))
    spec = _partition(parts)
    if_not_exists = parts.skip("IF", "NOT", "EXISTS")
    if if_not_exists and (not overwrite or spec is None or spec.dynamic):
        raise InvalidExpression(
            f"{what} into {table} with IF NOT EXISTS: it belongs to INSERT OVERWRITE … PARTITION"
            " with a value for every partition column"
        )
    for clause, instead in _NOT_WITH_INSERT.items():
        if parts.comes(*clause.split()):
            raise UnsupportedStatement(f"{what} with {clause} is not supported; {instead}")
    columns: tuple[str, ...] = ()
    inside = Parts(parts.text, parts.tokens, parts.at + 1)
    if parts.comes("(") and not is_query(inside):
        columns = tuple(only_name(one) for one in parts.in_parentheses())
        if parts.comes("PARTITION"):
            raise InvalidExpression(
                f"{what} into {table}: PARTITION (…) stands before the list of columns"
            )
    source: Query | ValuesRows
    if selects and not parts.comes("SELECT"):
        raise InvalidExpression(f"{what} into {table} after FROM needs a SELECT {parts.here}")
    if selects and (other := _own_from(parts)) is not None:
        raise InvalidExpression(
            f"{what} into {table} has a FROM of its own, line {other.line}, beside the one that all"
            " these INSERTs share; leave one out"
        )
    if parts.skip("VALUES"):
        if before:
            raise UnsupportedStatement(f"{what} of VALUES with WITH is not supported; leave it out")
        source = ValuesRows(tuple(_row(one) for one in parts.between_commas()))
    elif not is_query(parts):
        raise InvalidExpression(f"{what} into {table} needs VALUES or a SELECT")
    else:
        source = query(before + selected(parts.rest()))
    return Insert(table, source, columns, spec, overwrite, if_not_exists)


def _own_from(parts: Parts) -> Token | None:
    """The FROM of a SELECT, but for that of IS DISTINCT FROM; None if there is none."""
    ahead = Parts(parts.text, parts.tokens, parts.at)
    while (number := ahead.find("FROM")) < len(parts.tokens):
        if word(parts.tokens, number - 1) != "DISTINCT":
            return parts.tokens[number]
        ahead.at = number + 1
    return None


def _partition(parts: Parts) -> PartitionSpec | None:
    if not parts.skip("PARTITION"):
        return None
    start = parts.at
    parts.in_parentheses()
    return PartitionSpec.of(f"PARTITION {parts.slice(start, parts.at)}")


def truncate(text: str) -> Truncate:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("TRUNCATE", "this")
    parts.skip("TABLE")
    table, spec = ".".join(changed_table(parts)), _partition(parts)
    if not parts.ended:
        raise UnsupportedStatement(
            f"TRUNCATE with {parts.rest()} is not supported; leave that part out"
        )
    return Truncate(table, spec)


def load_data(text: str) -> LoadData:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("LOAD DATA", "this")
    if not parts.skip("LOCAL"):
        raise UnsupportedStatement(
            "LOAD DATA INPATH would move the files, and nothing is moved here; write LOAD DATA"
            " LOCAL INPATH, which copies their rows, and remove them after it"
        )
    parts.need("INPATH", "LOAD DATA LOCAL")
    if not parts.text_comes():
        raise InvalidExpression(f"not Hive SQL: LOAD DATA needs a path in quotes {parts.here}")
    source = parts.tokens[parts.at].text
    parts.at += 1
    overwrite = parts.skip("OVERWRITE")
    parts.need("INTO TABLE", "LOAD DATA")
    table, spec = ".".join(changed_table(parts)), _partition(parts)
    if not parts.ended:
        raise UnsupportedStatement(
            f"LOAD DATA with {parts.rest()} is not supported; leave that part out"
        )
    return LoadData(table, source, spec, overwrite)


def changed_table(parts: Parts) -> tuple[str, ...]:
    """The name of the table to change. Raises UnsupportedStatement for a snapshot of it."""
    name = parts.name()
    first = parts.at + parts.comes("FOR")
    if word(parts.tokens, first + 1) == "AS" and word(parts.tokens, first + 2) == "OF":
        raise UnsupportedStatement(
            f"{'.'.join(name)} can't be changed as of a snapshot; ALTER TABLE … ROLLBACK TO undoes"
            " changes"
        )
    return name


def selected(text: str) -> str:
    """A query; `TABLE t` is another word for `SELECT * FROM t`."""
    parts = Parts.of(text)
    return f"SELECT * FROM {parts.rest()}" if parts.skip("TABLE") else text


def only_name(text: str) -> str:
    parts = Parts.of(text)
    name = parts.name()
    if not parts.ended or len(name) > 1:
        raise InvalidExpression(f"not Hive SQL: {text!r} is not the name of a column")
    return name[0]


def _row(text: str) -> tuple[Expression, ...]:
    """A row of VALUES: a list in parentheses, or one value."""
    parts = Parts.of(text)
    values = [text]
    if parts.comes("(") and closing(parts.tokens, 0) == len(parts.tokens) - 1:
        values = parts.in_parentheses()
    return tuple(map(expression, values))


def update(text: str) -> Update:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("UPDATE", "this")
    _refuse_choice(parts, "UPDATE")
    name = changed_table(parts)
    alias = parts.alias("SET")
    parts.need("SET", "UPDATE")
    assignments = assignments_of(parts, ("WHERE",), "UPDATE")
    where = _where(parts)
    return Update(".".join(name), alias or name[-1], assignments, where, alias is not None)


def delete(text: str) -> Delete:
    """Raises InvalidExpression, UnsupportedStatement."""
    parts = Parts.of(text)
    parts.need("DELETE", "this")
    if not parts.skip("FROM"):
        raise InvalidExpression("DELETE needs FROM: DELETE FROM t WHERE …")
    _refuse_choice(parts, "DELETE")
    name = changed_table(parts)
    alias = parts.alias("WHERE")
    where = _where(parts)
    return Delete(".".join(name), alias or name[-1], where, alias is not None)


def _refuse_choice(parts: Parts, what: str) -> None:
    """Raises UnsupportedStatement for ORDER BY and LIMIT, which would choose some rows."""
    depth = 0
    for number in range(parts.at, len(parts.tokens)):
        following = word(parts.tokens, number + 1)
        ordered = parts.tokens[number].token_type is TokenType.ORDER_BY
        limited = word(parts.tokens, number) == "LIMIT" and (
            following == "ALL" or following.isdigit()
        )
        if not depth and (ordered or limited):
            raise UnsupportedStatement(
                f"{what} with {'ORDER BY' if ordered else 'LIMIT'} is not supported; choose the"
                " rows by a condition, such as WHERE id IN (SELECT id FROM t ORDER BY id LIMIT 10)"
            )
        depth += depth_change(parts.tokens[number])


def _where(parts: Parts) -> Expression | None:
    if parts.ended:
        return None
    parts.need("WHERE", "this")
    return expression(parts.rest())


def assignments_of(parts: Parts, ends: Sequence[str], what: str) -> tuple[Assignment, ...]:
    """The assignments of SET, up to one of the words of `ends`. Raises InvalidExpression."""
    assignments: list[Assignment] = []
    while True:
        start = parts.at
        target = () if parts.comes("*") else parts.name()
        if not target or not (parts.skip("=") or parts.skip("==")):
            parts.at = start
            raise InvalidExpression(f"{what} SET {parts.until(',', *ends)!r} is not column = value")
        if target in (assigned.target for assigned in assignments):
            raise InvalidExpression(f"{what} SET names column {'.'.join(target)!r} twice")
        assignments.append(Assignment(target, expression(parts.until(",", *ends))))
        if not parts.skip(","):
            return tuple(assignments)
