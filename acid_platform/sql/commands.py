"""Statements that are recognised by regular expressions: neither queries nor changes of rows."""

from __future__ import annotations

import re
from collections.abc import Callable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.compaction.states import CompactionKind
from acid_platform.errors import InvalidExpression
from acid_platform.layout.partition_names import DEFAULT_PARTITION
from acid_platform.metastore.pasts import AsOf
from acid_platform.sql.statements import (
    AbortTransactions,
    AddColumns,
    AddPartitions,
    ChangeColumn,
    Compact,
    Control,
    CreateDatabase,
    CreateTag,
    DropDatabase,
    DropPartitions,
    DropTable,
    DropTag,
    PartitionSpec,
    RenameTable,
    RollBack,
    SetProperties,
    SetValue,
    Show,
    ShowKind,
    Statement,
    Truncate,
    Use,
)
from acid_platform.sql.time_travel import timestamp

_ONE = r"(?:`[^`]+`|\w+)"
_NAME = rf"(?P<name>{_ONE}(?:\.{_ONE})?)"
_LIKE = r"(?: (?:like )?(?:'(?P<like>[^']*)'|\"(?P<like2>[^\"]*)\"))?"
_SPECS = r"(?P<specs>partition ?\(.+\))"
_ALTER = rf"alter table {_NAME}"
_LABEL = r"(?:`[^`]+`|'[^']+'|\"[^\"]+\"|\w+)"

Match = re.Match[str]


def command(plain: str) -> Statement | None:
    """The statement in a text without comments; None if it is not one of these statements.

    Raises InvalidExpression for a part that can't be parsed.
    """
    for pattern, build in _COMMANDS:
        if match := pattern.fullmatch(plain):
            return build(match)
    return None


def unquoted(name: str) -> str:
    return name.replace("`", "").lower()


def partition_specs(text: str) -> tuple[PartitionSpec, ...]:
    """Parses `PARTITION (a=1) PARTITION (a=2)`, also with commas. Raises InvalidExpression."""
    inner = re.split(r"\)[ ,]*partition ?\(", text.strip()[:-1], flags=re.IGNORECASE)
    first = inner[0].partition("(")[2]
    return tuple(partition_spec(_arguments(spec, text)) for spec in (first, *inner[1:]))


def partition_spec(parts: list[exp.Expr]) -> PartitionSpec:
    """The spec of parts that are `key=literal` or `key`. Raises InvalidExpression."""
    fixed: dict[str, str | None] = {}
    dynamic: list[str] = []
    for part in parts:
        if isinstance(part, exp.EQ) and isinstance(part.this, exp.Column):
            if dynamic:
                raise InvalidExpression(
                    f"PARTITION: {part.sql('hive')} comes after {dynamic[-1]}; write fixed values"
                    " first"
                )
            fixed[part.this.name.lower()] = _value(part.expression)
        elif isinstance(part, exp.Column | exp.Identifier):
            dynamic.append(part.name.lower())
        else:
            raise InvalidExpression(
                f"PARTITION: {part.sql('hive')!r} is neither column=value nor a column"
            )
    return PartitionSpec(fixed, tuple(dynamic))


def _value(node: exp.Expr) -> str | None:
    match node:
        case exp.Null():
            return None
        case exp.Literal():
            if node.this == "":
                raise InvalidExpression(
                    "PARTITION: an empty text is stored as NULL; write column=NULL for both"
                )
            return None if node.this == DEFAULT_PARTITION else str(node.this)
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return f"-{node.this.this}"
        case exp.Boolean():
            return str(node.this).lower()
        case exp.Cast() if isinstance(node.this, exp.Literal):
            return str(node.this.this)
    raise InvalidExpression(f"PARTITION: {node.sql('hive')!r} is not a literal")


def _arguments(inner: str, text: str) -> list[exp.Expr]:
    try:
        call = sqlglot.parse_one(f"spec({inner})", dialect="hive")
    except SqlglotError as error:
        raise InvalidExpression(f"not Hive SQL: {text!r}") from error
    return list(call.expressions)


def properties(text: str) -> dict[str, str]:
    """Parses `'a'='b', 'c'='d'`. Raises InvalidExpression."""
    values: dict[str, str] = {}
    for part in _arguments(text, f"TBLPROPERTIES ({text})"):
        if not isinstance(part, exp.EQ):
            raise InvalidExpression(f"TBLPROPERTIES: {part.sql('hive')!r} is not 'name'='value'")
        values[part.this.name] = part.expression.name
    return values


def _show(listing: ShowKind) -> Callable[[Match], Statement]:
    def build(match: Match) -> Statement:
        groups = match.groupdict()
        like = groups.get("like") or groups.get("like2") or ""
        return Show(listing, unquoted(groups.get("name") or ""), like)

    return build


def _partition(match: Match) -> PartitionSpec | None:
    return partition_specs(match["specs"])[0] if match["specs"] else None


def _set(match: Match) -> Statement:
    value = match["value"]
    return SetValue(match["key"] or "", None if value is None else value.strip())


def _change(match: Match) -> Statement:
    after = "" if match["first"] else match["after"] and unquoted(match["after"])
    return ChangeColumn(
        unquoted(match["name"]), unquoted(match["old"]), f"{match['new']} {match['type']}", after
    )


def _as_of(match: Match) -> AsOf | None:
    """The snapshot in the groups `version`, `time` and `tag`, at most one of which has matched."""
    found = match.groupdict()
    if found["version"]:
        return AsOf(write_id=int(found["version"]))
    if found["time"]:
        return AsOf.of(timestamp(found["time"]))
    return AsOf(tag=_text(found["label"])) if found["label"] else None


def _text(name: str) -> str:
    """A name as it is written in quotes or backticks, or without them."""
    return name[1:-1] if name[0] in "`'\"" else name


def _roll_back(match: Match) -> Statement:
    as_of = _as_of(match)
    assert as_of is not None
    return RollBack(unquoted(match["name"]), as_of)


def _create_tag(match: Match) -> Statement:
    days = int(match["days"] or 0)
    return CreateTag(unquoted(match["name"]), _text(match["tag"]), _as_of(match), days)


def _compact(match: Match) -> Statement:
    return Compact(
        unquoted(match["name"]),
        CompactionKind(match["kind"].lower()),
        _partition(match),
        bool(match["wait"]),
    )


def _abort(match: Match) -> Statement:
    ids = tuple(int(number) for number in re.split("[ ,]+", match["ids"].strip()))
    return AbortTransactions(ids, match["what"].lower() == "compactions")


_RULES: tuple[tuple[str, Callable[[Match], Statement]], ...] = (
    (rf"show (?:databases|schemas){_LIKE}", _show(ShowKind.DATABASES)),
    (rf"show tables(?: (?:in|from) {_NAME})?{_LIKE}", _show(ShowKind.TABLES)),
    (rf"show partitions {_NAME}", _show(ShowKind.PARTITIONS)),
    (rf"show create table {_NAME}", _show(ShowKind.CREATE_TABLE)),
    (r"show transactions", _show(ShowKind.TRANSACTIONS)),
    (rf"show locks(?: {_NAME})?", _show(ShowKind.LOCKS)),
    (r"show compactions", _show(ShowKind.COMPACTIONS)),
    (rf"desc(?:ribe)? formatted {_NAME}", _show(ShowKind.FORMATTED)),
    (rf"desc(?:ribe)? history {_NAME}", _show(ShowKind.HISTORY)),
    (rf"desc(?:ribe)? (?:table )?(?!(?:formatted|history) ){_NAME}", _show(ShowKind.COLUMNS)),
    (rf"use (?:database )?(?P<name>{_ONE})", lambda m: Use(unquoted(m["name"]))),
    (r"set(?: (?P<key>[\w.]+)(?: ?=(?P<value>.*))?)?", _set),
    (r"(?:start transaction|begin)", lambda _: Control.START),
    (r"commit(?: work)?", lambda _: Control.COMMIT),
    (r"rollback(?: work)?", lambda _: Control.ROLLBACK),
    (
        rf"create (?:database|schema) (?P<if>if not exists )?(?P<name>{_ONE})",
        lambda m: CreateDatabase(unquoted(m["name"]), bool(m["if"])),
    ),
    (
        rf"drop (?:database|schema) (?P<if>if exists )?(?P<name>{_ONE})"
        r"(?: (?:restrict|(?P<cascade>cascade)))?",
        lambda m: DropDatabase(unquoted(m["name"]), bool(m["if"]), bool(m["cascade"])),
    ),
    (
        rf"drop (?:table|(?P<view>view)) (?P<if>if exists )?{_NAME}(?: purge)?",
        lambda m: DropTable(unquoted(m["name"]), bool(m["if"]), bool(m["view"])),
    ),
    (
        rf"truncate (?:table )?{_NAME}(?: {_SPECS})?",
        lambda m: Truncate(unquoted(m["name"]), _partition(m)),
    ),
    (
        rf"{_ALTER} add columns ?\((?P<columns>.+)\)",
        lambda m: AddColumns(unquoted(m["name"]), m["columns"]),
    ),
    (
        rf"{_ALTER} change (?:column )?(?P<old>{_ONE}) (?P<new>{_ONE}) (?P<type>.+?)"
        rf"(?: (?:(?P<first>first)|after (?P<after>{_ONE})))?",
        _change,
    ),
    (
        rf"{_ALTER} rename to (?P<to>{_ONE}(?:\.{_ONE})?)",
        lambda m: RenameTable(unquoted(m["name"]), unquoted(m["to"])),
    ),
    (
        rf"{_ALTER} add (?P<if>if not exists )?{_SPECS}",
        lambda m: AddPartitions(unquoted(m["name"]), partition_specs(m["specs"]), bool(m["if"])),
    ),
    (
        rf"{_ALTER} drop (?P<if>if exists )?{_SPECS}(?: purge)?",
        lambda m: DropPartitions(unquoted(m["name"]), partition_specs(m["specs"]), bool(m["if"])),
    ),
    (
        rf"{_ALTER} set tblproperties ?\((?P<properties>.+)\)",
        lambda m: SetProperties(unquoted(m["name"]), properties(m["properties"])),
    ),
    (
        rf"{_ALTER} rollback to (?:version )?(?:(?P<version>\d+)|timestamp '(?P<time>[^']*)'"
        rf"|(?:tag )?(?P<label>{_LABEL}))",
        _roll_back,
    ),
    (
        rf"{_ALTER} create tag (?P<tag>{_LABEL})"
        r"(?: (?:for system_)?(?:as of version|version as of) (?P<version>\d+)"
        r"| (?:as of timestamp|for system_time as of) '(?P<time>[^']*)'"
        rf"| as of tag (?P<label>{_LABEL}))?(?: retain (?P<days>\d+) days?)?",
        _create_tag,
    ),
    (
        rf"{_ALTER} drop tag (?P<if>if exists )?(?P<tag>{_LABEL})",
        lambda m: DropTag(unquoted(m["name"]), _text(m["tag"]), bool(m["if"])),
    ),
    (rf"show tags {_NAME}", _show(ShowKind.TAGS)),
    (
        rf"{_ALTER}(?: {_SPECS})? compact ['\"](?P<kind>minor|major)['\"](?P<wait> and wait)?",
        _compact,
    ),
    (r"abort (?P<what>transactions|compactions) (?P<ids>\d+(?:[ ,]+\d+)*)", _abort),
)
_COMMANDS = tuple((re.compile(pattern, re.IGNORECASE), build) for pattern, build in _RULES)
