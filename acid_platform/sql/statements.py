"""The text of one statement as a value: a query, or something to show. Nothing runs here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from acid_platform.errors import InvalidExpression, UnsupportedStatement

SUPPORTED = (
    "SELECT (with CTEs, joins, subqueries, UNION)", "SHOW DATABASES", "SHOW TABLES [IN db]",
    "SHOW PARTITIONS t", "SHOW CREATE TABLE t", "SHOW TRANSACTIONS", "SHOW LOCKS",
    "SHOW COMPACTIONS", "DESCRIBE t",
)


class Listing(Enum):
    """What a SHOW or DESCRIBE lists."""

    DATABASES = "databases"
    TABLES = "tables"
    PARTITIONS = "partitions"
    CREATE_TABLE = "create table"
    TRANSACTIONS = "transactions"
    LOCKS = "locks"
    COMPACTIONS = "compactions"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Show:
    """`name` is a table, or the database of SHOW TABLES; `like` is Hive's pattern or empty."""

    listing: Listing
    name: str = ""
    like: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT without side effects, as sqlglot's tree."""

    tree: exp.Query


_NAME = r"(?P<name>[\w`]+(?:\.[\w`]+)?)"
_LIKE = r"(?:\s+(?:like\s+)?'(?P<like>[^']*)')?"
_SHOWS: tuple[tuple[str, Listing], ...] = (
    (rf"show\s+(?:databases|schemas){_LIKE}", Listing.DATABASES),
    (rf"show\s+tables(?:\s+(?:in|from)\s+{_NAME})?{_LIKE}", Listing.TABLES),
    (rf"show\s+partitions\s+{_NAME}", Listing.PARTITIONS),
    (rf"show\s+create\s+table\s+{_NAME}", Listing.CREATE_TABLE),
    (r"show\s+transactions", Listing.TRANSACTIONS),
    (r"show\s+locks", Listing.LOCKS),
    (r"show\s+compactions", Listing.COMPACTIONS),
    (rf"desc(?:ribe)?\s+(?:table\s+)?{_NAME}", Listing.COLUMNS),
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUERIES = {"SELECT", "WITH", "FROM"}
_TWO_WORDS = {"ALTER", "ABORT", "CREATE", "DESC", "DESCRIBE", "DROP", "INSERT", "SHOW", "START"}


def parse(text: str) -> Query | Show:
    """One statement in Hive's SQL; a semicolon at its end is allowed.

    Raises UnsupportedStatement for what is not in SUPPORTED, and for several statements;
    InvalidExpression for what is not SQL.
    """
    shown = _show(text)
    if shown is not None:
        return shown
    if _leading(text) not in _QUERIES:
        raise _unsupported(text)
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="hive") if tree is not None]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise InvalidExpression(
            f"not Hive SQL: {first.get('description', error)} near {first.get('highlight', '')!r},"
            f" line {first.get('line', 1)} column {first.get('col', 1)}"
        ) from error
    except SqlglotError as error:
        raise InvalidExpression(f"not Hive SQL: {error}") from error
    if len(trees) != 1:
        raise UnsupportedStatement(
            f"{len(trees)} statements in one text; give them one at a time")
    tree = trees[0]
    if not isinstance(tree, exp.Query) or not tree.find(exp.Select):
        raise _unsupported(text)
    changing = tree.find(exp.Into, exp.Insert, exp.QueryTransform)
    if changing is not None:
        raise UnsupportedStatement(
            f"a SELECT with {changing.key.upper()} does more than read; leave that part away")
    return Query(tree)


def _show(text: str) -> Show | None:
    if _leading(text) not in ("SHOW", "DESC", "DESCRIBE"):
        return None
    plain = _COMMENT.sub(" ", text).strip().rstrip(";").strip()
    for pattern, listing in _SHOWS:
        if match := re.fullmatch(pattern, plain, re.IGNORECASE):
            found = match.groupdict()
            name = (found.get("name") or "").replace("`", "").lower()
            return Show(listing, name, found.get("like") or "")
    raise _unsupported(text)


def _leading(text: str) -> str:
    words = re.findall(r"[A-Za-z_]+", _COMMENT.sub(" ", text))
    return words[0].upper() if words else ""


def _unsupported(text: str) -> UnsupportedStatement:
    words = [word.upper() for word in re.findall(r"[A-Za-z_]+", _COMMENT.sub(" ", text))]
    if not words:
        return UnsupportedStatement(f"there is no statement; supported: {', '.join(SUPPORTED)}")
    name = " ".join(words[:2] if words[0] in _TWO_WORDS else words[:1])
    return UnsupportedStatement(
        f"{name} is not supported in SQL yet; supported: {', '.join(SUPPORTED)}. Tables are made"
        " and changed from Python: create_table, insert, overwrite, update, delete, compact"
    )


def matches(pattern: str, name: str) -> bool:
    """Hive's LIKE of SHOW: `*` or `%` for any text, `|` between alternatives; any case."""
    if not pattern:
        return True
    parts = (re.escape(one).replace(r"\*", ".*").replace("%", ".*") for one in pattern.split("|"))
    return any(re.fullmatch(one, name, re.IGNORECASE) for one in parts)
