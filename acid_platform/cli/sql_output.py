"""In which form the answers of `acid sql` are printed, or written to a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import click

from acid_platform.cli.console import CommandSession, Failed, echo
from acid_platform.display.markdown_text import table_line
from acid_platform.display.progress_bar import hide_progress

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.engine.interface import Result
    from acid_platform.sql.answers import Outcome, ResultRows

FORMATS = ("table", "markdown", "json", "csv", "parquet")
FOR_PEOPLE = ("table", "markdown")
"""Forms that show at most --limit rows."""


class Output:
    """Where answers go, and in which form.

    `file`: results go there; then a script may have one with rows. Raises UsageError for a form
    that needs a file, or can't be in one.
    """

    def __init__(
        self, session: CommandSession, form: str | None, limit: int, file: str | None = None
    ) -> None:
        suffix = Path(file or "").suffix[1:].lower()
        by_name = "markdown" if suffix == "md" else suffix
        self.form = form or ("json" if session.json else by_name if by_name in FORMATS else "table")
        if session.json and self.form != "json":
            raise click.UsageError(f"--json is --format json; it is also told --format {self.form}")
        if file is not None and self.form == "table":
            raise click.UsageError(
                "-o writes csv, json, markdown or parquet: say --format, or end FILE with one"
            )
        if file is None and self.form == "parquet":
            raise click.UsageError("--format parquet needs -o FILE")
        self.paged = False
        """Whether a table that is longer than the terminal goes through a pager."""
        self._session, self._limit, self._file = session, limit, file
        self._draft = f"{file}.{os.getpid()}.part" if file else ""
        self._written, self._count = False, 0

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """The file takes its name if the block succeeds; else what was there stays."""
        draft = self._draft
        if kind is None and draft:
            if not self._written:
                raise Failed(f"{self._file} was not written: no statement of the script has rows")
            os.replace(draft, str(self._file))
            echo(f"{self._count:,} rows in {self._file}", err=True)
        with suppress(FileNotFoundError):
            os.unlink(draft)

    def show(self, answer: Outcome) -> int | None:
        """Prints or writes an answer; returns how many rows it has, if any. Raises UsageError for a
        second result with rows in one file, and what the result raises."""
        from acid_platform.sql.answers import Done, rows_of

        if isinstance(answer, Done):
            hide_progress()
            if self.form == "json" and self._file is None:
                self._session.say_json(asdict(answer))
            else:
                echo(answer.message, err=self.form not in FOR_PEOPLE)
            return answer.rows
        if self._file is not None or self.form == "csv":
            return self._write(answer)
        most = self._limit if self._limit and self.form in FOR_PEOPLE else None
        rows = rows_of(answer, most)
        assert rows is not None
        hide_progress()
        if self.form == "json":
            self._session.say_json(rows.rows)
        elif not rows.rows:
            echo("no rows")
        elif self.form == "markdown":
            echo(markdown(rows))
        else:
            self._session.render(rows.listing(), len(rows.rows) if self.paged else 0)
        if rows.note:
            echo(rows.note, err=True)
        if rows.cut:
            echo(f"the first {most} rows; --limit 0 prints all", err=True)
        return len(rows.rows)

    def _write(self, answer: Outcome) -> int:
        """Writes a result to the file, or as CSV to standard output."""
        from acid_platform.metastore.operations.listings import Shown
        from acid_platform.sql.answers import ShownResult, rows_of

        if self._written and self._file is not None:
            raise click.UsageError("-o FILE holds one result, and the script has two")
        with self._target() as target:
            if self.form in ("json", "markdown"):
                rows = rows_of(answer)
                assert rows is not None
                text = json.dumps(rows.rows, default=str) if self.form == "json" else markdown(rows)
                target.write(f"{text}\n".encode())
                count = len(rows.rows)
            else:
                result = ShownResult.of(answer, _no_spark) if isinstance(answer, Shown) else answer
                if self._written:  # the next table of one stream
                    target.write(b"\n")
                count = _stream(result, target, self.form)  # type: ignore[arg-type]
        self._written, self._count = True, count
        return count

    @contextmanager
    def _target(self) -> Iterator[BinaryIO]:
        """Standard output, or a draft of the file. Raises UsageError."""
        if self._file is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        try:
            with open(self._draft, "xb") as opened:
                yield opened
        except OSError as error:
            raise click.UsageError(f"{self._file} can't be written: {error.strerror}") from error


def _no_spark() -> NoReturn:
    raise AssertionError("a listing needs no Spark")


def _stream(result: Result, target: BinaryIO, form: str) -> int:
    """Writes the rows batch by batch; returns their number."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from acid_platform.sql.answers import unique_names
    from acid_platform.values.row_streams import far_dates_as_text

    batches, count = result.batches(), 0
    names = unique_names(batches.schema.names)
    rows = (pa.Table.from_batches([batch]).rename_columns(names) for batch in batches)
    if form == "csv":
        rows = (_as_texts(far_dates_as_text(table)) for table in rows)
    first = next(rows, None)
    if first is None:
        first = batches.schema.empty_table().rename_columns(names)
        first = _as_texts(first) if form == "csv" else first
    with ExitStack() as closing:
        if form == "csv":
            writer = closing.enter_context(pyarrow.csv.CSVWriter(target, first.schema))
        else:
            writer = closing.enter_context(pyarrow.parquet.ParquetWriter(target, first.schema))
        while first is not None:
            writer.write_table(first)
            count += first.num_rows
            first = next(rows, None)
    return count


def _as_texts(table: pa.Table) -> pa.Table:
    """The table with what CSV has no form for as texts: structs, lists and maps as JSON."""
    import pyarrow as pa

    from acid_platform.sql.answers import hive_text

    for at, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [
                None if value is None else hive_text(field.name, value)
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
    return table


def markdown(rows: ResultRows) -> str:
    """The rows as a table of Markdown, in which no value is markup."""
    listing = rows.listing()
    return "\n".join(
        [
            table_line(listing.columns),
            "|" + "---|" * len(listing.columns),
            *(table_line(listing.texts(row)) for row in listing.rows),
        ]
    )
