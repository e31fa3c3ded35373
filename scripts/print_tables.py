"""Writes the parts of docs/reference.md and the pages of docs/internal/ that are printed from
the code, and llms.txt from the pages.

Run `python -m scripts.print_tables` after a change of them; a test compares.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from acid_platform.base.config import HONOURED, REFUSED, LockSettings
from acid_platform.cli.main import main
from acid_platform.engine.local.translation import queries  # noqa: F401  which fills the table
from acid_platform.engine.local.translation.expressions import CONSTRUCTS
from acid_platform.engine.local.translation.signatures import KINDS, SIGNATURES
from acid_platform.engine.spark import VERSIONS
from acid_platform.layout.table_properties import TABLE_PROPERTIES
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import (
    BY_ROW,
    CONFLICTING,
    SKEWED,
    WAITS,
    LockType,
    Statement,
    lock_of,
)
from acid_platform.transactions.row_sets import MOST_KEYS, MOST_SPANS
from scripts import llms_page, rights_page

DOCS = Path(__file__).resolve().parents[1] / "docs"

_COMMANDS = """\
`acid` is in `.venv/bin`; `python -m acid_platform` is the same. Every command takes
`--warehouse PATH` and `--json`, before its name or behind it. Without the former the warehouse is
`ACID_WAREHOUSE`, or in the directory of the project, or below it, what `.env` says, else
`var/warehouse`. `acid --version` prints the version. The exit code is 0, 1 if it failed (one line
on stderr says why) or 2 for wrong usage. Only `sql`, `head`, `compact`, `erase`, `rollback`, `diff`
and `run worker` start Spark.
"""

_LOCKS = """\
# Locks and conflicts

Printed from the code by `python -m scripts.print_tables`; a test fails when this page is older than
the code.
"""

_ENGINES = """\
# What runs in which engine

Printed from the code by `python -m scripts.print_tables`; a test fails when this page is older
than the code.

[Which engine runs a statement](../query.md#which-engine-runs-it), and how to choose it. What the
local engine accepts gives the columns, rows and errors of Spark, but for the order of additions:
what stands on this page was computed in both engines over values of all its types, and is computed
again by `make test-full`. Everything else goes to Spark.

On one machine size sends nothing to Spark, which has the same cores and disk there and needs a heap
beside this process. Memory is bounded instead: streams stay streams, changes and compactions go
through in parts, files are written as they fill, and what has to be sorted or joined and does not
fit is spilled into a private directory in `TMPDIR`. If that has no room either, the statement
raises `OutOfMemory`, and no other engine repeats it. Where there is a cluster (`ACID_SPARK_MASTER`
names one, or `ACID_SPARK_REMOTE` a server), `auto` sends it the statements that read more than
`acid.local.max.bytes` and compactions of more than `acid.local.compaction.max.bytes`.

From where a cluster is worth it can only be estimated, since no machine here has more than two
cores. On these, at scale 1 of TPC-H and TPC-DS (121 queries), Spark on plain Parquet took 6.9 times
the seconds of the local engine on our tables (median of the queries; 2.5 to 26), and 15 times those
of a second run in the same process (3.5 to 55); at scale 0.1 it was 10.5 times. A cluster that
divides each query without loss is then as fast from 14 cores on (5 to 53 by query), and from 30 for
queries that are repeated. Each tenfold of the rows lowers that by about a third, as far as two
scales say, because what Spark needs for each query weighs less.
[Seconds by query](../../benchmarks/results/2026-11-30-tpc-1.json).

Rows of this process that have to go to Spark need not fit into its driver's heap: they go by files
in a private directory to a Spark of this machine, and piece by piece to another one. The files of a
table that no statement has changed are planned once for the queries of a process. [How the local
engine compares with DuckLake and delta-rs, and what limits
it](../../benchmarks/results/2026-11-28-local-summary.md).

## Queries

The shape of a query passes through as it is; its expressions are those of the tables below. SELECT
with WHERE, GROUP BY (names, positions, aliases, expressions), HAVING, DISTINCT, ORDER BY, SORT BY,
DISTRIBUTE BY, CLUSTER BY, LIMIT and OFFSET; ROLLUP, CUBE or GROUPING SETS of columns, with
`grouping` and `grouping_id`; `*`, `t.*` and `* EXCEPT`; inner, left, right, full, cross, left semi
and left anti joins, USING and NATURAL; UNION, INTERSECT and EXCEPT, also ALL; CTEs; subqueries in
FROM; VALUES; scalar subqueries, IN and EXISTS anywhere but in ON, correlated ones by columns of the
query around them in their WHERE; window functions, also over aggregates and by a name of WINDOW,
with ROWS frames, and RANGE frames from UNBOUNDED or CURRENT ROW; `explode`, `posexplode`, `inline`
(and their `_outer`), `stack` and `json_tuple` as one column of a SELECT without GROUP BY.

A decimal has Spark's precision and scale: the common type of two keeps all digits before the point,
and rounds those behind it for which 38 digits lack the room (a comparison that would round a
literal needs Spark). What DuckDB can't hold on the way to a sum, a product or a quotient is an
error there, and the query then needs Spark.

`range(…)` of literals stands in FROM.

These need Spark: names of an earlier column in the same SELECT, columns without an alias whose name
in Spark is not known here (INSERT … SELECT asks for none), columns of the types `timestamp_ntz`,
`variant` and of intervals, ROLLUP and the like beside other keys or ordered by anything but columns
of SELECT and `grouping` of its keys, a correlated subquery with GROUP BY, HAVING, DISTINCT or
LIMIT, or a scalar one that is no aggregate, WITH RECURSIVE, TABLESAMPLE, QUALIFY of groups, PIVOT
for several columns or for what is no literal, UNPIVOT of columns of several types, USING of
columns of several types, or of CHAR and VARCHAR in a full join, an aggregate in ORDER BY beside
HAVING of an aggregate or a column that SELECT lacks (which Spark refuses: name it in SELECT), a
name in an expression of ORDER BY or HAVING that a column and another value of SELECT have, a window
or a correlated subquery, IN or EXISTS in GROUP BY and ORDER BY, a correlated scalar subquery as a
value of groups, a correlated EXISTS beside ROLLUP and the like, and keys and distinct rows of
`float` and `double` where a part of the query has one row, which Spark does not group, so that -0.0
stays.

Whether an expression has a value is seen when it is computed. Neither engine promises an order, so
after an error of a value (an overflow, a division by zero, a cast) the query is computed again with
AND and OR evaluated from left to right, as Spark does. If it fails again, `auto` asks Spark, and
`local` raises the error. Nothing was returned by then; in a result that is read in batches, an
error after the first batch is raised. An expression without columns, such as `1 / 0`, is computed
before any row is read, as Spark does: without a value it fails a statement that finds no row,
unless it stands in a branch (CASE, `if`, `coalesce` and the like). Where Spark may leave it out
before, in a subquery or beside LIMIT, the local engine refuses it.

Some values are decided when they are read: a text that only Spark parses as a number or date, a
sum of `bigint` that overflows in some orders, a letter whose case DuckDB changes differently. The
result then raises NeedsSpark, and never gives a different value.

Four kinds of values depend on the order in which rows come, in Spark from run to run too, by how
it divides them among tasks. `sum` and `avg` of `float` and `double`, `stddev`, `variance`, `corr`,
`covar_…`, `regr_…`, `skewness` and `kurtosis` may differ in their last bits, and in more where
large numbers cancel each other out. `first`, `last`, `any_value`, `listagg` without an order, and
`max_by` and `min_by` of equal values give what comes first. The elements of `collect_list` and
`collect_set` may stand in another order. `min` and `max` of 0.0 and -0.0, which are equal, give one
of them, also with OVER. `greatest` and `least` give the first of equal values, in both engines; but
Spark computes `greatest(a, b)` and `greatest(b, a)` in one SELECT once, so that both have the first
zero of one of them.

ORDER BY … LIMIT of at most 10,000 rows of one table first reads the columns of its order and its
condition, and then other columns only in the files and stripes that hold such a row. LIMIT without
them reads the first files until it has its rows. `min`, `max` and `count` of columns, of a whole
table or by conditions on partition columns, come from the records of files where these prove them.
After deletes, `min` and `max` of whole numbers, decimals, dates and strings are looked for in the
stripes that may have them, the farthest bounds first.

CURRENT_TIMESTAMP, `now()` and `current_date()` are the time in UTC at which the statement began,
the same in all of its parts, and each time that its result is read. In Spark, the source of a MERGE
that inserts rows has a moment of its own.

A pattern of RLIKE, `regexp_extract` and `regexp_replace` may have literal characters, classes
without `&&` or a class inside, `.`, `^`, `$`, `|`, groups, `(?:…)`, `\\d \\w \\s` and their
opposites, and `* + ? {n,m}`, also lazy, after what can't be empty. Flags, look-ahead, references to
groups, `\\b`, `\\p`, possessive repetition and a repeated group with groups inside need Spark: Java
reads them in another way than RE2 does, or RE2 lacks them.

A pattern of `to_date`, `to_timestamp` and `unix_timestamp` may have `yyyy`, `MM`, `dd`, `HH`, `mm`,
`ss`, and `M` and `d` between signs. A text that does not match it and has a digit is left to Spark.
JSON that the standard does not allow, and its numbers with a fraction, are left to Spark; so are
URLs with escapes. A variant is read by `variant_get` as a value of exactly the type that it has,
and XML by a path of names, `text()` or an attribute; entities, comments and namespaces are left to
Spark. `make_date` and `make_timestamp` are for the years 1 to 9999.

A pattern of `date_format` may have `y yy yyyy`, `M MM MMM MMMM`, `d dd`, `D DDD`, `E EE EEE EEEE`,
`H HH h hh`, `m mm`, `s ss`, `a`, up to six `S`, text in quotes, and signs.

## Writes

INSERT, INSERT OVERWRITE, UPDATE, DELETE and MERGE of rows in this process and of local results, in
tables with and without partitions and buckets, and in insert-only tables in ORC and Parquet. SET
takes fields of structs, and subqueries as a SELECT does: one that reads the row needs Spark. The
rows, the row ids, the files and what their commit records are as Spark writes them.
UPDATE, DELETE and MERGE first read the columns of their condition or of ON, and then decode other
columns only in the files and stripes that hold a row to change.

These go to Spark before anything is published: the other formats of insert-only tables, timestamps
in Parquet, and a codec that is not written here; days before 15 October 1582, which ORC's Java
writers count in the Julian calendar; `binary` partition columns, and `float` and `double` ones
unless the value is 0 or a whole number below 10,000,000; more than 4,096 partitions in 32 MB of
rows; maps that hold timestamps or CHAR; expressions for columns of nested types, other than a
column or a field of exactly that type.

## Versions of Spark

The platform is written for Spark 4.0 to 4.3, with the differences that the table names. The lock
has the newest, with which all tests run; `pip install pyspark==4.1.4` is enough for another one.
`make lab-test-sparks` runs the suites that use Spark with each version. It ran with 4.0.5, 4.1.4
and 4.2.1 the suites of the engine, SQL, compaction, history, streams and a small cluster; Iceberg
and Delta beside our tables with 4.1.4, and Delta with 4.2.1 (Iceberg has no build for it). What
passed, and with which Python and pandas, is in `benchmarks/results/2026-11-28-matrix.md`.

The format that reads ACID files is compiled for the Spark of the session. Where that fails, as it
may in a Spark that is newer than these or that its vendor has changed, Spark's own ORC reader reads
instead, which takes longer, and a warning says so. Executors must run exactly the driver's version;
otherwise the session is refused.

Sail (pysail 0.7.2, a Spark Connect server on DataFusion, without a JVM) is no engine here. It
refuses the client of PySpark 4.3, and as `ACID_SPARK_REMOTE` it lacks what a session is checked by
(`java_method`), so the first statement that needs Spark fails. With the client of 4.1.4 the data
source `acid` is found and gives columns, but no rows: Sail hands its reader Arrow's types of
columns in place of Spark's. With that put right in a copy it read decimals, dates, timestamps,
lists, maps and structs of a table with deleted rows, with `where` and without.

Spark 3.5 is refused. Its Scala is 2.12, so the format would have to be written anew; it has no data
sources in Python; and the classes behind PySpark's frames are others. Let it write Parquet files,
and [load these](../load.md).

The platform needs pandas 2.2 or newer, and works with pandas 3. PySpark 4.3 warns that it does not
support pandas 3 in all parts, so the lock has pandas 2.3. Here PySpark uses pandas only where you
ask it to, as in `toPandas`; rows come and go as Arrow. Python 3.11, 3.12 and 3.13 were run. Python
3.14 is admitted, and all packages of the lock can be installed there, but nothing was run with it.
"""


def render_locks() -> str:
    """The page of locks and conflicts."""
    parts = [
        _LOCKS,
        "## Which lock waits for which\n",
        "Row: the lock that is asked for. Column: the lock that is held.\n",
        _matrix(
            [one.name for one in LockType],
            [["waits" if WAITS[asked, held] else "" for held in LockType] for asked in LockType],
        ),
        "Two locks meet only on the same database, and there on the same table and partition, where"
        " one that names none meets all. A SHARED_READ of a whole database waits for, and holds"
        " back, other locks of the database only.\n",
        "## What a statement asks for\n",
        "`xlock.write` is the setting `hive.txn.xlock.write`. With `hive.txn.xlock.iow` false, an"
        " INSERT OVERWRITE takes EXCL_WRITE; with `hive.txn.xlock.mergeinsert` the inserts of a"
        " MERGE count as updates. Reads of a DataFrame take no lock: they hold a lease.\n",
        _table(("statement", "lock", "with xlock.write", "recorded as"), _statements()),
        "## Which commits conflict\n",
        "Row: mine. Column: what another transaction committed to the same partition since mine"
        " was opened. Updates and deletes conflict only if both changed the same row, or if one"
        " of them did not name its rows; under `acid.conflict.detection=partition` always."
        " OVERWRITE is INSERT OVERWRITE and TRUNCATE; it conflicts with inserts as"
        " well, and with nothing that its snapshot sees.\n",
        _matrix(
            [one.name for one in RowOperation],
            [[_conflict(mine, theirs) for theirs in RowOperation] for mine in RowOperation],
        ),
        "A single overwrite begins again instead, up to `hive.txn.max.retrysnapshot.count` times in"
        " all. In a transaction of several statements it raises WriteConflict: at once where its"
        " lock names the partition or the table has none, else at the commit, which knows the"
        " partitions that were written.\n",
        "Besides: whatever has a write id below that of a committed overwrite of the same"
        " partition conflicts with it, an insert too, since the new base would hide it.\n",
        "These do not name their rows: writers of other engines; a transaction"
        " whose list of rows is longer than `acid.conflict.rows.bytes` and can't be shortened to"
        " ranges; and old commits that a long transaction overlaps, when all lists together exceed"
        " `acid.conflict.memory.bytes`.\n",
        "## Looked for, and not found\n",
        "A commit that looked for rows in order to write, and inserted or updated rows, tells the"
        " metastore of both. It is compared with those that its snapshot misses:\n",
        _table(
            ("mine looked for rows that theirs brought", "theirs for rows that mine brings", ""),
            [
                ("yes" if missed else "no", "yes" if missing else "no", "conflict" * conflict)
                for (missed, missing), conflict in SKEWED.items()
            ],
        ),
        "A transaction looks for rows by a MERGE (the keys of its source where ON demands equal"
        " columns, and comparisons of the table's columns with literals; all rows with WHEN NOT"
        " MATCHED BY SOURCE), by the WHERE of an UPDATE or DELETE, by what the query of a statement"
        " that writes reads, and by an overwrite (the partition). Rows are told by their partition,"
        " by the range of a column"
        f" (up to {MOST_SPANS} ranges), and by hashes of up to {MOST_KEYS} keys; what is brought,"
        " by the partitions and the recorded statistics of its files, and by the keys by which a"
        " MERGE looked for them. What an UPDATE brings concerns only conditions that read a column"
        " which it assigns (SET of the key that ON compares assigns nothing), and it counts as"
        " looking for inserted rows that have the values which it assigns."
        " What can't be told so counts as any row: a function of a column,"
        " floating point numbers, timestamps, more than a quarter of `acid.conflict.rows.bytes`"
        " each. In Spark, of a source that is no row of this process the lowest and highest keys"
        " are known. Of a writer of another engine, what it locked for UPDATE, DELETE or an"
        " overwrite, and for SELECT in tables that it does not update.\n",
        "A single statement begins again, up to `hive.txn.max.retrysnapshot.count` times.\n",
    ]
    return "\n".join(parts)


def _settings() -> str:
    parts = [
        _table(
            ("setting", "default", "allowed"),
            [(_code(one.name), _code(one.default), one.allowed) for one in HONOURED],
        ),
        "These would change what statements do, or promise a protection that nobody here gives, and"
        " are refused unless they have the one value. Any other setting of Hive changes nothing:"
        " SET ignores it, and says so the first time.\n",
        _table(
            ("setting", "value", "why"),
            [(_code(one.name), _code(one.default), one.reason) for one in REFUSED],
        ),
    ]
    return "\n".join(parts)


def _properties() -> str:
    parts = [
        "Another name that begins with `acid.`, `compactor.` or `compactorthreshold.` is refused;"
        " `compactor.mapreduce.*`, `compactor.tez.*` and the like, which belong to Hive's own"
        " compaction jobs, have no effect. What promises a protection that nothing here keeps is"
        " refused, also of databases, such as `immutable`, `readonly`, `PROTECT_MODE`,"
        " `auto.purge=false` and `orc.encrypt`. Any other name is kept, unless it is nearly one of"
        " these.\n",
        _table(
            ("property", "default", "allowed", "what it is", "read by", "ALTER TABLE"),
            [
                (
                    _code(one.name),
                    _code(one.values.default),
                    one.values.allowed,
                    one.meaning,
                    one.read_by,
                    "no" if one.fixed else "yes",
                )
                for one in TABLE_PROPERTIES
            ],
        ),
    ]
    return "\n".join(parts)


def _conflict(mine: RowOperation, theirs: RowOperation) -> str:
    if not CONFLICTING[mine, theirs]:
        return ""
    return "the same row" if {mine, theirs} <= BY_ROW else "conflict"


def render_reference() -> str:
    """The reference with its printed parts as the code has them now."""
    printed = {
        "commands": "\n".join([_COMMANDS, *(_command(*found) for found in _walk("acid", main))]),
        "settings": _settings(),
        "properties": _properties(),
    }
    page = (DOCS / "reference.md").read_text()
    for name, text in printed.items():
        begin, end = f"<!-- printed: {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not (found and ended):
            raise ValueError(f"docs/reference.md has no place for the printed {name}")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


_SIGNED = """Each by the name and the arguments that are written; a kind with `*` takes any number
of arguments, or none. The first signature that takes all of them is called. Behind some names
stands a word of a form of their own: `trim both`, `extract YEAR`, `dateadd MONTH`,
`count distinct`, `over lag` for a function that is of windows alone, `rows of explode` for one that
makes rows, and `within` for WITHIN GROUP, whose order is then the first argument. `[]` is `a[b]`.
"""


def render_engines() -> str:
    """The page of what runs without Spark."""
    versions = [
        (
            f"{major}.{minor}",
            "as written" if row.places_by_number else "slower: whole rows go through Python first",
            "as written" if row.streams_have_limits else "without `maxCommitsPerTrigger`",
        )
        for (major, minor), row in sorted(VERSIONS.items(), reverse=True)
    ]
    heads = ("Spark", "writes into clustered tables", "streams from our tables")
    operators = [(_code(one.shown), one.types) for one in CONSTRUCTS.values()]
    parts = [_ENGINES, _table(heads, versions)]
    parts += ["## Operators\n", _table(("SQL", "takes"), operators)]
    for title, aggregates in (
        ("Functions", False),
        ("Aggregates, also with FILTER and OVER", True),
    ):
        alike: dict[str, list[str]] = {}
        for name, given in sorted(SIGNATURES.items()):
            if given[0].aggregate is aggregates:
                forms = "; ".join(_code(f"({', '.join(one.takes)})") for one in given)
                word, _, unit = name.partition(" ")  # a row for all units of one call
                of = word if unit and word != "trim" else [one.sql for one in given]
                alike.setdefault(f"{of}{forms}", [forms]).append(name)
        rows = [(", ".join(map(_code, names)), forms) for forms, *names in alike.values()]
        told = [_SIGNED] if not aggregates else []
        parts += [f"## {title}\n", *told, _table(("function", "takes"), rows)]
    taken = [(_code(name), meaning) for name, (meaning, *_) in KINDS.items()]
    return "\n".join([*parts, "## What the words mean\n", _table(("takes", "meaning"), taken)])


def _walk(path: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, one in sorted(group.commands.items()):
        if isinstance(one, click.Group):
            if one.invoke_without_command:
                yield f"{path} {name}", one
            yield from _walk(f"{path} {name}", one)
        else:
            yield f"{path} {name}", one


def _command(path: str, one: click.Command) -> str:
    given = [
        f"[{p.human_readable_name}]" if not p.required else p.human_readable_name
        for p in one.params
        if isinstance(p, click.Argument)
    ]
    options = [
        (_code(" / ".join([*p.opts, *p.secondary_opts])), p.help or "")
        for p in one.params
        if isinstance(p, click.Option) and p.name not in ("warehouse", "as_json")
    ]
    parts = [
        f"### {path}\n",
        f"`{' '.join([path, *given])}`\n",
        f"{inspect.cleandoc(one.help or '')}\n",
    ]
    return "\n".join([*parts, _table(("option", ""), options)] if options else parts)


def _statements() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in Statement:
        lock, operation = lock_of(one)
        strict, _ = lock_of(one, LockSettings(xlock_write=True))
        rows.append((one.value, lock.name, strict.name, operation.name))
    return rows


def _matrix(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _table(
        ("", *names), [(f"**{name}**", *row) for name, row in zip(names, rows, strict=True)]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
        )
        + "\n"
    )


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


PAGES = {
    DOCS / "reference.md": render_reference,
    DOCS / "internal" / "locks.md": render_locks,
    DOCS / "internal" / "engines.md": render_engines,
    DOCS / "internal" / "rights.md": rights_page.render,
    DOCS.parent / "llms.txt": llms_page.render,
}

if __name__ == "__main__":
    for target, render in PAGES.items():
        target.write_text(render())
