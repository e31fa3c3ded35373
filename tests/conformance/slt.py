"""Cases in the form of sqllogictest: how a file is read, and how a case is run.

A file holds cases. A case begins with comments (`# case: …`, and before it `# project: …`; `# case`
alone is named after its first statement) and has records, each of which ends with an empty line. It
runs in an empty database; but if records stand before the first case of a file, they make the
tables of all its cases, and each case is rolled back, unless all that it does is refused. There
`rows t` inserts its lines, rows as JSON, since not every engine computes structs.

    statement ok                 statement count 2             statement error WrongType: .*price
    CREATE TABLE t (k int)       DELETE FROM t WHERE k > 1     INSERT INTO t VALUES ('x')

    query IT rowsort
    SELECT * FROM t
    ----
    1 a

As in sqllogictest-rs, a row is one line with a blank between its values, `NULL` and `(empty)` stand
for what has no characters, and an error is a pattern: here of the error's class and text. A
statement with an error must leave the rows of all tables as they are. A line `onlyif spark` before
a record says that the other engine raises NeedsSpark there; for that engine the case ends with it.
`# skip s3: …` leaves a case out of a configuration, and says why.

Cases in `statements/more` are for `make test` in the local engine alone.

`python -m tests.conformance.record FILE` writes what the queries of a file answer into it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acid_platform.errors import AcidError, NeedsSpark

HERE = Path(__file__).parent
OURS = HERE / "statements"
PUBLISHED = HERE.parent / "published"
Rows = Sequence[Sequence[str]]
Run = Callable[[str], "Rows | int | None"]
"""Runs a statement: its rows, or how many it changed, or None. Raises AcidError."""
Tables = Callable[[], dict[str, list[str]]]
"""The committed rows of each table that a case may change, sorted."""
_HEADS = ("shows", "refused", "differs")


@dataclass(frozen=True, slots=True)
class Record:
    """A statement, and what it has to answer: rows, a number of them, an error, or anything."""

    line: int
    sql: str
    rows: tuple[str, ...] | None = None
    sort: bool = False
    count: int | None = None
    error: str | None = None
    only_spark: bool = False
    table: str = ""
    """The table that gets the lines of `sql`, each a row as JSON."""


@dataclass(slots=True)
class Case:
    """What one published test stands for. `refused`, `differs`: why ours answers otherwise."""

    file: str
    project: str
    test: str
    shows: str = ""
    refused: str = ""
    differs: str = ""
    records: list[Record] = field(default_factory=list)
    tables: tuple[Record, ...] = ()
    """What makes the tables of all cases of the file."""
    skips: dict[str, str] = field(default_factory=dict)
    """Why a configuration leaves the case out, by its name."""

    @property
    def needs_spark(self) -> bool:
        return any(record.only_spark for record in self.records)


def cases(directory: Path) -> list[Case]:
    """All cases, file by file."""
    files = sorted(directory.glob("*.slt"))
    return [case for path in files for case in parsed(path.name, path.read_text())]


def parsed(file: str, text: str) -> Iterator[Case]:
    """The cases of a file. Raises ValueError with the line that is not understood."""
    project, case, tables = "", None, list[Record]()
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line, start = lines[at], at
        at += 1
        if header := re.fullmatch(r"# (\w+)(?:: (.+))?", line):
            name, value = header[1], header[2] or ""
            if name == "project":
                project = value
            elif name == "case":
                if case:
                    yield case
                case = Case(file, project, value, tables=tuple(tables))
            elif case and name in _HEADS:
                setattr(case, name, value)
        elif case and (skip := re.fullmatch(r"# skip ([\w-]+): (.+)", line)):
            case.skips[skip[1]] = skip[2]
        elif line and not line.startswith("#"):
            while at < len(lines) and lines[at]:
                at += 1
            record = _record(f"{file}:{start + 1}", start + 1, lines[start:at])
            (case.records if case else tables).append(record)
            if case and not case.test:
                case.test = " ".join(record.sql.split())[:120]
    if case:
        yield case


def _record(where: str, number: int, lines: list[str]) -> Record:
    only_spark = lines[0] == "onlyif spark"
    head, *body = lines[only_spark:]
    rows = None
    if "----" in body:
        end = body.index("----")
        body, rows = body[:end], tuple(body[end + 1 :])
    sql = "\n".join(body)
    match head.split(" ", 2):
        case ["rows", table]:
            return Record(number, sql, table=table)
        case ["query", *how] if rows is not None and len(how) < 3:
            sort = "rowsort" in how
            return Record(number, sql, rows, sort, only_spark=only_spark)
        case ["statement", "ok"] if rows is None:
            return Record(number, sql, only_spark=only_spark)
        case ["statement", "count", count] if rows is None:
            return Record(number, sql, count=int(count), only_spark=only_spark)
        case ["statement", "error", error] if rows is None:
            return Record(number, sql, error=error, only_spark=only_spark)
    raise ValueError(f"{where}: not understood: {head}")


def check(case: Case, run: Run, tables: Tables, is_spark: bool) -> None:
    """Runs the records in turn. Raises AssertionError for the first that answers otherwise, or is
    refused and has changed a row."""
    for record in case.records:
        if record.only_spark and not is_spark:
            _check_error(case, record, run, "NeedsSpark: ")
            return
        if record.error is not None:
            before = tables()
            _check_error(case, record, run, record.error)
            if (after := tables()) != before:
                raise _fault(case, record, f"was refused, but left {after}, not {before}")
            continue
        try:
            answer = run(record.sql)
        except AcidError as error:
            raise _fault(case, record, f"{type(error).__name__}: {error}") from error
        if record.count is not None and answer != record.count:
            raise _fault(case, record, f"changed {answer} rows, not {record.count}")
        if record.rows is not None:
            if answer is None or isinstance(answer, int):
                raise _fault(case, record, "answered no rows")
            given = shown(answer)
            wanted = list(record.rows)
            if record.sort:
                given.sort()
                wanted.sort()
            if given != wanted:
                raise _fault(case, record, f"answered {given}, not {wanted}")


def shown(rows: Rows) -> list[str]:
    """Rows as a file has them: what stands between values is one blank."""
    return [" ".join(" ".join(row).split()) for row in rows]


def _check_error(case: Case, record: Record, run: Run, pattern: str) -> None:
    try:
        answer = run(record.sql)
    except AcidError as error:
        text = f"{type(error).__name__}: {error}"
        unwanted = isinstance(error, NeedsSpark) and not re.match("NeedsSpark", pattern)
        if unwanted or not re.match(pattern, text, re.DOTALL):
            raise _fault(case, record, f"raised {text}, not {pattern}") from error
        return
    raise _fault(case, record, f"answered {answer}, and did not raise {pattern}")


def _fault(case: Case, record: Record, what: str) -> AssertionError:
    return AssertionError(f"{case.file}:{record.line}: {case.test}\n{record.sql}\n{what}")


def recorded(text: str, answers: dict[int, Rows]) -> str:
    """The text of a file with these rows below its queries, by the line of each query."""
    lines = text.splitlines()
    for start in sorted(answers, reverse=True):
        divider = lines.index("----", start)
        end = lines.index("", divider) if "" in lines[divider:] else len(lines)
        rows = shown(answers[start])
        if any("rowsort" in head.split() for head in lines[start - 1 : start + 1]):
            rows.sort()
        lines[divider + 1 : end] = rows
    return "\n".join(lines) + "\n"
