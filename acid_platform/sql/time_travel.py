"""`FOR SYSTEM_VERSION AS OF`, `FOR SYSTEM_TIME AS OF` and `table_changes` in queries (P36, P39).

The parser replaces such a table by a name that carries the snapshot, so that each later step takes
the table of then for another table than the table of now. No table can have such a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlglot import Token, exp

from acid_platform.base.arguments import nearest_name
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.metastore.pasts import AsOf
from acid_platform.sql.scopes import cte_of

_MARKED = re.compile(r"(.+)@([vtn])([0-9a-f]+)")
_CHANGES = re.compile(r"(.+)@c([0-9a-z]*)_([0-9a-z]*)")
_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}


def with_words_of_sqlglot(text: str, tokens: Sequence[Token]) -> str:
    """The statement with `FOR VERSION AS OF` for Hive's `FOR SYSTEM_VERSION AS OF`, which sqlglot
    lacks; every other character keeps its place. `tokens` are those of the text."""
    for before, word, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        spelt = [text[token.start : token.end + 1].upper() for token in (before, word, after)]
        if spelt == ["FOR", "SYSTEM_VERSION", "AS"]:
            text = text[: word.start] + "VERSION".ljust(len(spelt[1])) + text[word.end + 1 :]
    return text


def mark(tree: exp.Expr) -> bool:
    """Gives each table that is read as of the past its marked name, in place.

    Returns whether one of these pasts depends on the time of this call. Raises
    UnsupportedStatement, InvalidExpression.
    """
    momentary = False
    for table in list(tree.find_all(exp.Table)):
        if isinstance(table.this, exp.Anonymous) and table.this.name.lower() == "table_changes":
            momentary |= table.this.find(exp.CurrentTimestamp) is not None
            _mark_changes(table)
            continue
        if isinstance(table.this, exp.Anonymous) and nearest_name(
            table.this.name.lower(), ["table_changes"], 0.85
        ):
            raise InvalidExpression(
                f"there is no function {table.this.name} in FROM; did you mean table_changes?"
            )
        version = table.args.get("version")
        if version is None:
            continue
        if not isinstance(table.this, exp.Identifier) or cte_of(table) is not None:
            raise UnsupportedStatement(
                f"{table.sql('hive')!r} is no stored table, and only these have a history"
            )
        momentary |= version.find(exp.CurrentTimestamp) is not None
        as_of = _as_of(version)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", exp.to_identifier(f"{table.name}@{_written(as_of)}", quoted=True))
        table.set("version", None)
    return momentary


def _mark_changes(table: exp.Table) -> None:
    """Gives `table_changes('db.t', since, until)` the name of its table with both snapshots."""
    arguments = list(table.this.expressions)
    name = arguments[0] if arguments else None
    if len(arguments) not in (2, 3) or not (isinstance(name, exp.Literal) and name.is_string):
        raise InvalidExpression(
            f"{table.sql('hive')!r}: write table_changes('db.t', since) or table_changes('db.t',"
            " since, until), with the name of a table and the snapshots between which it changed"
        )
    database, _, short = name.name.lower().rpartition(".")
    since, until = (_snapshot(each) for each in (*arguments[1:], exp.Null())[:2])
    ends = f"{_written(since) if since else ''}_{_written(until) if until else ''}"
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier("table_changes")))
    table.set("this", exp.to_identifier(f"{short}@c{ends}", quoted=True))
    if database:
        table.set("db", exp.to_identifier(database, quoted=True))


def _snapshot(value: exp.Expr) -> AsOf | None:
    """A write id, a time, a tag, or NULL."""
    match value:
        case exp.Null():
            return None
        case exp.Literal() if value.is_string:
            try:
                return AsOf.of(datetime.fromisoformat(value.name.strip()))
            except ValueError:
                return AsOf(tag=value.name)
        case exp.Literal():
            return AsOf(write_id=_number(value))
    return AsOf.of(_time(value))


def changes_between(name: str) -> tuple[str, AsOf | None, AsOf | None] | None:
    """The table of a name that stands for its changes, and the two snapshots; None for others."""
    match = _CHANGES.fullmatch(name)
    if match is None:
        return None
    table, *ends = match.groups()
    since, until = (_read(each[0], each[1:]) if each else None for each in ends)
    return table, since, until


def unmarked(name: str) -> tuple[str, AsOf | None]:
    """The name of a table without its mark, and the snapshot that the mark names."""
    match = _MARKED.fullmatch(name)
    if match is None:
        return name, None
    table, kind, text = match.groups()
    return table, _read(kind, text)


def _read(kind: str, text: str) -> AsOf:
    if kind == "n":
        return AsOf(tag=bytes.fromhex(text).decode())
    return AsOf(write_id=int(text)) if kind == "v" else AsOf(time=int(text))


def stored_name(name: str) -> str:
    """The table that a name means, without any snapshot that it carries."""
    between = changes_between(name)
    return between[0] if between else unmarked(name)[0]


def refuse_marks(defining: exp.Expr) -> None:
    """Raises UnsupportedStatement if the query of a view reads a past snapshot."""
    for table in defining.find_all(exp.Table):
        if unmarked(table.name)[1] is not None or changes_between(table.name) is not None:
            raise UnsupportedStatement(
                "a view can't read a table as of the past, since histories are cleaned; name a"
                " table that keeps those rows"
            )


def _written(as_of: AsOf) -> str:
    if as_of.tag is not None:
        return f"n{as_of.tag.encode().hex()}"
    return f"v{as_of.write_id}" if as_of.time is None else f"t{as_of.time}"


def _as_of(version: exp.Expr) -> AsOf:
    kind, value = str(version.this).upper(), version.expression
    if str(version.args.get("kind")).upper() != "AS OF" or value is None:
        raise UnsupportedStatement(f"{version.sql('hive')!r} is not supported; AS OF is")
    if kind == "VERSION":
        if isinstance(value, exp.Literal):
            return AsOf(tag=value.name) if value.is_string else AsOf(write_id=_number(value))
        raise InvalidExpression(
            f"{version.sql('hive')!r} needs a write id, or the name of a tag as a text"
        )
    moment = AsOf.of(_time(value))
    if moment.time is not None and moment.time < 0:
        raise InvalidExpression(f"{value.sql('hive')!r} is before 1970")
    return moment


def _number(value: exp.Literal) -> int:
    try:
        return int(value.name)
    except ValueError as error:
        raise InvalidExpression(f"{value.name} is no write id: it has to be whole") from error


def timestamp(text: str) -> datetime:
    """A time as text; UTC if it names no zone (P17). Raises InvalidExpression."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidExpression(
            f"{text!r} is no timestamp such as '2026-11-23 17:05:09.123'"
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _time(value: exp.Expr) -> datetime:
    """A text or TIMESTAMP literal, or CURRENT_TIMESTAMP, plus or minus intervals; UTC (P17)."""
    match value:
        case exp.Literal() if value.is_string:
            return timestamp(value.name)
        case exp.Cast() if value.is_type("timestamp", "timestamptz", "date", "datetime"):
            return _time(value.this)
        case exp.TsOrDsToTimestamp() | exp.Paren() | exp.TsOrDsToDate():
            return _time(value.this)
        case exp.CurrentTimestamp():
            return datetime.now(UTC)
        case exp.Add():
            return _time(value.this) + _interval(value.expression)
        case exp.Sub():
            return _time(value.this) - _interval(value.expression)
    raise InvalidExpression(
        f"AS OF {value.sql('hive')!r} is not supported: write a timestamp as text, or"
        " CURRENT_TIMESTAMP with INTERVALs"
    )


def _interval(value: exp.Expr) -> timedelta:
    if isinstance(value, exp.Interval) and isinstance(value.this, exp.Literal):
        unit = str(value.args.get("unit") or "").upper().removesuffix("S")
        if unit in _UNITS and re.fullmatch(r"\d{1,9}", value.this.name):
            return timedelta(seconds=int(value.this.name) * _UNITS[unit])
    raise InvalidExpression(
        f"{value.sql('hive')!r} is no INTERVAL of seconds, minutes, hours, days or weeks"
    )
