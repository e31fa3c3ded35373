"""Splitting a script into its statements, and parsing each, or saying what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from acid_platform.base.arguments import nearest_name, refuse_half_characters
from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.sql_text import pieces
from acid_platform.sql.run_queries import explain
from acid_platform.sql.statements import (
    NAME,
    Change,
    Command,
    Commands,
    CreateTable,
    CreateView,
    Statement,
)
from acid_platform.sql.text import Parts, Query, query

_ALTER = rf"alter table {NAME}(?: partition ?\(.*\))? "
_RIGHTS = "rights on tables are given to the users of a gateway, by the setting acid.gateway.grants"
_FUNCTION = "use Spark's functions, which SHOW FUNCTIONS lists, or compute the column in Python"
_FORMAT = "make another table with it by CREATE TABLE … AS SELECT"
_VIEW = "use CREATE VIEW, or CREATE TABLE … AS SELECT and an asset that writes it anew"
_NO_JARS = "leave it out; packages of Spark are named by ACID_SPARK_PACKAGES"

_MERGE = "write MERGE INTO t USING … s ON t.id = s.id WHEN MATCHED … WHEN NOT MATCHED …"

ADVICE: tuple[tuple[str, str], ...] = (
    (r"(?:grant|revoke) ", _RIGHTS),
    (r"(?:create|drop|set|show) (?:current )?roles?\b", _RIGHTS),
    (r"show (?:grants?|principals)\b", _RIGHTS),
    (r"(?:un)?lock ", "each statement locks what it needs; START TRANSACTION keeps its locks"),
    (r"export ", "copy the rows by CREATE TABLE … LOCATION '…' AS SELECT"),
    (r"import ", "wh.adopt_table('db.t', location) takes over a directory of Hive's files"),
    (r"(?:create|drop|reload) (?:temporary )?functions?\b", _FUNCTION),
    (r"(?:create|drop) temporary macro\b", "write the expression where it is used, or in a view"),
    (r"(?:create|drop|alter|show) materialized views?\b", _VIEW),
    (
        r"(?:create|drop|alter) scheduled query\b",
        "make the table an asset, and give it a schedule of Dagster (docs/assets.md)",
    ),
    (r"repl ", "use `acid metastore backup`, or an archive (docs/grow.md)"),
    (r"kill query\b", "use ABORT TRANSACTIONS with an id that SHOW TRANSACTIONS lists"),
    (r"restore ", "write ALTER TABLE … ROLLBACK TO n, with a write id of DESCRIBE HISTORY"),
    (r"replace table\b", "use DROP TABLE and CREATE TABLE, or INSERT OVERWRITE"),
    (r"(?:upsert|replace into|insert or) ?", _MERGE),
    (r"optimize ", "write ALTER TABLE … COMPACT 'major'"),
    (r"vacuum ", "leave it out; the Cleaner removes files that no snapshot needs"),
    (r"(?:create|drop|alter|show) index(?:es)?\b", "leave it out; files have their own statistics"),
    (r"(?:create|drop|alter|show) resource plans?\b", "leave it out; Dagster limits what runs"),
    (
        r"create (?:or replace )?table \S+ (?:shallow |deep )?clone\b",
        "write CREATE TABLE … AS SELECT * FROM …; a tag keeps a snapshot without a copy",
    ),
    (r"create temporary external table\b", "leave one of both words out"),
    (r"create [^']*table [^']* skewed by\b", "leave SKEWED BY out"),
    (
        r"create [^']*table [^']* stored by\b",
        "leave STORED BY out, and copy the rows of the other system in (docs/load.md)",
    ),
    (
        r"create (?:database|schema) .*(?:managed)?location ",
        "leave LOCATION out; CREATE TABLE … LOCATION '…' places a table elsewhere",
    ),
    (
        r"alter (?:database|schema) \S+ set (?:managed)?location\b",
        "make another database, or place a table elsewhere by CREATE TABLE … LOCATION '…'",
    ),
    (rf"{_ALTER}set owner\b", f"tables have no owner; {_RIGHTS}"),
    (r"alter view ", "write ALTER VIEW … AS SELECT …, or CREATE OR REPLACE VIEW"),
    (rf"{_ALTER}set (?:fileformat|inputformat)\b", _FORMAT),
    (rf"{_ALTER}(?:un)?set (?:serde|serdeproperties)\b", _FORMAT),
    (rf"{_ALTER}set location\b", "make another table there by CREATE TABLE … LOCATION … AS SELECT"),
    (rf"{_ALTER}(?:not )?(?:clustered|sorted)\b|{_ALTER}into \d+ buckets", _FORMAT),
    (rf"{_ALTER}(?:not )?(?:skewed|stored)\b|{_ALTER}set skewed\b", "leave it out"),
    (rf"{_ALTER}touch\b", "leave it out"),
    (rf"{_ALTER}(?:un)?archive\b", "use COMPACT 'major', which makes few large files"),
    (
        rf"{_ALTER}exchange\b",
        "move the rows in one transaction: START TRANSACTION; INSERT … SELECT; DELETE; COMMIT",
    ),
    (rf"{_ALTER}recover partitions\b", "use ALTER TABLE … ADD PARTITION"),
    (
        rf"{_ALTER}(?:add|drop|replace) partition field\b",
        "partitions are by columns: give the rows one with the value of the transform",
    ),
    (
        rf"{_ALTER}(?:create|drop|replace) branch\b",
        "there are no branches; CREATE TAG keeps a snapshot",
    ),
    (rf"{_ALTER}(?:enable|disable)\b", "leave it out; a gateway's grants protect a table"),
    (rf"{_ALTER}compact\b", "write COMPACT 'major' or 'minor' [AND WAIT]"),
    (r"desc(?:ribe)? (?:extended|formatted) ", "write DESCRIBE FORMATTED t, or DESCRIBE t column"),
    (r"(?:add|delete|list) (?:jar|file|archive)s?\b", _NO_JARS),
    (
        r"explain (?:ast|analyze|authorization|cbo|ddl|debug|dependency|vectorization)\b",
        "write EXPLAIN, which shows the tables, locks and the engine's plan",
    ),
    (r"(?:start transaction|begin) ", "write START TRANSACTION, which reads one snapshot"),
    (r"set autocommit\b", "write START TRANSACTION, and COMMIT or ROLLBACK"),
    (r"source ", "use `acid sql -f FILE`"),
    (r"(?:dfs|!) ?", "use a shell"),
    (r"(?:prepare|execute) ", "give parameters: wh.sql('… WHERE day = :day', {'day': day})"),
    (r"values\b", "write SELECT * FROM VALUES (1, 'a') AS t(id, v)"),
    (r"set ", "write SET name=value"),
)
"""How a text on one line begins, and what to write instead; the first counts."""

_TWO_WORDS = {
    *("ALTER", "ABORT", "ADD", "CREATE", "DESC", "DESCRIBE", "DROP", "EXPLAIN", "INSERT", "SHOW"),
    *("START", "LOAD", "LOCK", "UNLOCK", "ANALYZE", "MSCK", "KILL", "REPL", "EXPORT", "IMPORT"),
}
_CLAUSES = (
    *("BUCKETS", "CLUSTERED", "COMMENT", "DELIMITED", "EXISTS", "FIELDS", "FORMAT", "LOCATION"),
    *("PARTITIONED", "PROPERTIES", "SELECT", "STORED", "TABLE", "TBLPROPERTIES", "TERMINATED"),
)
"""Words that begin or belong to a clause of CREATE."""
_ADJECTIVES = {"CURRENT", "EXTERNAL", "MATERIALIZED", "RESOURCE", "SCHEDULED", "TEMPORARY"}
"""Second words of a statement whose third one says what it is about."""


def advice_on(plain: str) -> str | None:
    """What to write instead of a statement of Hive that is known, but not supported."""
    return next((text for start, text in ADVICE if re.match(start, plain, re.IGNORECASE)), None)


def refusal(plain: str, words: Sequence[str], names: Iterable[str]) -> UnsupportedStatement:
    """The error for a statement, given as one line and as its words in upper case.

    `names` are those of the statements that are supported.
    """
    name = _name(plain, words)
    if (advice := advice_on(plain)) is not None:
        return UnsupportedStatement(f"{name} is not supported; {advice}")
    supported = sorted({*names})
    if name.replace("… ", "") in supported:
        return UnsupportedStatement(
            f"this form of {name} is not supported: {plain[:100]!r}{_misspelt(words)}"
        )
    return UnsupportedStatement(f"{name} is not supported; {_meant(name, supported)}")


def _misspelt(words: Sequence[str]) -> str:
    """The first word that is nearly one of a clause."""
    for word in words:
        if near := nearest_name(word, _CLAUSES, 0.8):
            return f"; did you mean {near} by {word}?"
    return ""


def _name(plain: str, words: Sequence[str]) -> str:
    if tuple(words[:2]) == ("ALTER", "TABLE"):
        action = re.match(rf"{_ALTER}(\w+(?: \w+)?)", plain, re.IGNORECASE)
        return f"ALTER TABLE … {action[1].upper()}" if action else "ALTER TABLE"
    count = 1
    if len(words) > 1 and words[0] in _TWO_WORDS:
        count = 4 if words[1] == "OR" else 3 if words[1] in _ADJECTIVES else 2
    return " ".join(words[:count]) or repr(plain)


def _meant(name: str, supported: Sequence[str]) -> str:
    """Which statement may be meant, or those that begin alike."""
    verb = "ALTER TABLE" if name.startswith("ALTER TABLE") else name.partition(" ")[0]
    alike = [each for each in supported if each.startswith(f"{verb} ")]
    near = nearest_name(name.replace("… ", ""), alike or supported, 0.8)
    if not near and not alike:
        verbs = sorted({each.partition(" ")[0] for each in supported})
        near = nearest_name(verb, verbs)
    if near:
        return f"did you mean {near}?"
    if alike:
        rests = (each.removeprefix(f"{verb} ") for each in alike)
        firsts = (rest.partition(" ")[0] if verb == "ALTER" else rest for rest in rests)
        return f"{verb} takes {', '.join(dict.fromkeys(firsts))}"
    return "no statement begins so"


NO_STATEMENT = "there is no statement; write one, such as SHOW TABLES"
_OTHERS = (
    *("SELECT", "INSERT INTO", "INSERT OVERWRITE", "UPDATE", "DELETE", "MERGE INTO"),
    *("TRUNCATE TABLE", "LOAD DATA", "CREATE TABLE", "CREATE VIEW", "EXPLAIN"),
    *("CREATE EXTERNAL TABLE", "ALTER VIEW"),
)
"""The statements that are in none of the tables."""
_CHANGING = ("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "LOAD")
"""The first words of statements that change rows."""
_ALTER_VIEW = re.compile(rf"alter view ({NAME}) as ", re.IGNORECASE)
_EXPLAIN = re.compile(r"^.*?\bexplain\b(?:\s+(?:extended|formatted|locks)\b)?", re.I | re.S)


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """A statement as the user wrote it, in its canonical form (`layout.sql_text`)."""

    text: str
    plain: str
    """The text on one line, by which commands are recognised."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the statement in upper case."""
        return tuple(word.upper() for word in re.findall(r"[A-Za-z_]+", self.plain))


def split(script: str) -> tuple[ScriptStatement, ...]:
    """The statements between semicolons that are not in quotes or comments.

    Raises InvalidExpression for a comment that is not closed.
    """
    statements: list[ScriptStatement] = []
    text: list[str] = []
    for piece in (*pieces(script, several=True), ";"):
        if piece != ";":
            text.append(piece)
            continue
        plain = "".join(" " if part == "\n" else part for part in text).strip()
        if plain:
            statements.append(ScriptStatement("".join(text).strip(), plain))
        text = []
    return tuple(statements)


def parse(text: str | ScriptStatement) -> Statement:
    """Parses one statement of Hive SQL, with or without a final semicolon.

    Raises UnsupportedStatement for a statement that is not supported, and if there is not exactly
    one statement; InvalidExpression for text that is not SQL.
    """
    written = text if isinstance(text, ScriptStatement) else _only(text)
    refuse_half_characters(written.text)
    match written.words[0] if written.words else "":
        case "SELECT":
            return query(written.text)
        case "WITH" | "FROM":
            return _with(written.text)
        case "INSERT" if "OR" in written.words[1:2]:
            raise unsupported(written)
        case word if word in _CHANGING:
            from acid_platform.sql import parse_changes

            return parse_changes.PARSERS[word](written.text)
    for commands in _tables():
        if command := commands.parse(written.plain):
            return command
    match written.words[0] if written.words else "":
        case "CREATE":
            return _create(written)
        case "ALTER" if match := _ALTER_VIEW.match(written.plain):
            return _alter_view(written, match[1])
        case "EXPLAIN":
            return _explain(written)
    raise unsupported(written)


@cache
def _tables() -> tuple[Commands, ...]:
    """The commands, whose modules and patterns are loaded when a statement may be one of them."""
    from acid_platform.sql.run_columns import COLUMNS
    from acid_platform.sql.run_definitions import DEFINITIONS
    from acid_platform.sql.run_operations import OPERATIONS
    from acid_platform.sql.run_shows import SHOWS

    return SHOWS, OPERATIONS, COLUMNS, DEFINITIONS


def _with(text: str) -> Statement:
    """WITH … SELECT, WITH … INSERT, WITH … MERGE, or FROM … INSERT."""
    from acid_platform.sql import parse_changes

    parts = Parts.of(text)
    verbs = ("MERGE", "UPDATE", "DELETE")
    ahead = Parts(text, parts.tokens, parts.find("SELECT", "FROM", "INSERT", *verbs))
    for verb in verbs:
        if not ahead.comes(verb) or ahead.comes(verb, "AS") or ahead.comes(verb, "("):
            continue  # a name of WITH may be such a word
        if verb == "MERGE":
            return parse_changes.merge(text)
        raise UnsupportedStatement(
            f"WITH before {verb} is not supported; write its query where it is used:"
            f" {verb} … WHERE k IN (SELECT …)"
        )
    if not parts.has("INSERT"):
        return query(text)
    from_first = parts.find("FROM") < parts.find("INSERT")
    return (parse_changes.insert_from if from_first else parse_changes.insert)(text)


def _only(text: str) -> ScriptStatement:
    statements = split(text)
    if len(statements) != 1:
        what = f"{len(statements)} statements in one text" if statements else NO_STATEMENT
        raise UnsupportedStatement(what)
    return statements[0]


def unsupported(written: ScriptStatement) -> UnsupportedStatement:
    """The error that names the statement, and says what to write instead."""
    names = (name for commands in _tables() for name in commands.names)
    return refusal(written.plain, written.words, (*_OTHERS, *names))


def _create(written: ScriptStatement) -> Command:
    from acid_platform.sql.declarations import parse_create
    from acid_platform.sql.run_columns import create_external
    from acid_platform.sql.run_definitions import create_table, create_view

    if advice_on(written.plain) is not None:
        raise unsupported(written)
    match parse_create(written.text):
        case CreateTable(external=None) as table:
            return Command("CREATE TABLE", create_table, {"declared": table}, True)
        case CreateTable() as table:
            return Command("CREATE EXTERNAL TABLE", create_external, {"declared": table}, True)
        case CreateView() as view:
            return Command("CREATE VIEW", create_view, {"declared": view}, True)
    raise unsupported(written)


def _alter_view(written: ScriptStatement, name: str) -> Command:
    """ALTER VIEW … AS, which gives a view another query."""
    from acid_platform.sql.declarations import parse_create
    from acid_platform.sql.run_definitions import alter_view

    parts = Parts.of(written.text)
    parts.until("AS")
    view = parse_create(f"CREATE VIEW {name} {parts.rest()}")
    return Command("ALTER VIEW", alter_view, {"declared": view}, alone=True)


def _explain(written: ScriptStatement) -> Command:
    if advice_on(written.plain) is not None:
        raise unsupported(written)
    inner = parse(_EXPLAIN.sub("", written.text, count=1))
    if isinstance(inner, Command) and inner.explain is not None:
        return Command("EXPLAIN", inner.explain, inner.arguments)
    if not isinstance(inner, Query | Change):
        raise UnsupportedStatement(
            "EXPLAIN takes a SELECT, INSERT, UPDATE, DELETE, MERGE or TRUNCATE, and ALTER TABLE"
            " for columns"
        )
    return Command("EXPLAIN", explain, {"statement": inner})
