"""`acid sql`: a script of SQL, or a prompt for statements."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import click

from acid_platform.base.interrupts import heeding_signals
from acid_platform.cli.console import (
    CommandSession,
    Failed,
    LocalPath,
    OneOf,
    command,
    limit_option,
    main,
    told,
)
from acid_platform.cli.sql_output import FORMATS, Output
from acid_platform.display.progress_bar import progress
from acid_platform.errors import AcidError

engine_option = click.option(
    "--engine",
    type=OneOf(["auto", "spark", "local"]),
    help="local: without a JVM, or an error; auto (default, or ACID_ENGINE): local if possible.",
)


@command(main)
@click.argument("script", required=False)
@click.option(
    "-f",
    "--file",
    type=LocalPath(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Run the script in FILE.",
)
@limit_option("Rows to print as a table; 0 for all. JSON, CSV and Parquet have all rows.")
@engine_option
@click.option(
    "-m",
    "--message",
    default="",
    metavar="TEXT",
    help="What the histories of tables say of this script's changes.",
)
@click.option(
    "--format",
    "form",
    type=OneOf(FORMATS),
    help="How rows are written; default: as FILE's name ends, else a table.",
)
@click.option(
    "-o",
    "--output",
    type=LocalPath(dir_okay=False),
    metavar="FILE",
    help="Write the rows of the script's one result to FILE.",
)
def sql(
    session: CommandSession,
    script: str | None,
    file: str | None,
    limit: int,
    engine: str | None,
    message: str,
    form: str | None,
    output: str | None,
) -> None:
    """Run a SCRIPT of Hive's SQL: statements separated by semicolons; - reads standard input.
    Without a script: a prompt for statements.

    Each result is printed when its statement ends; with --json as one line. The first error ends
    the script and rolls back the transaction that it began.
    """
    if gc.get_freeze_count():  # this process is one command: see __main__
        gc.freeze()
    shown = Output(session, form, limit, output)
    if script is None and file is None and sys.stdin.isatty() and output is None:
        from acid_platform.cli.shell import Shell

        with session.open() as warehouse:
            warehouse.message = message
            Shell(warehouse, shown, engine).run()
        return
    text = _script(script, file)
    with session.open() as warehouse, heeding_signals(), shown:
        warehouse.message = message
        try:
            with progress():
                for _, answer in warehouse.session.steps(text, engine):
                    shown.show(answer)
        except AcidError as error:
            raise Failed(told(error)) from error
        if warehouse.session.in_transaction:
            raise Failed(
                "the script ended inside of a transaction, which is rolled back; end it"
                " with COMMIT or ROLLBACK"
            )


@command(main)
@click.argument("places", nargs=-1, type=LocalPath(exists=True))
@engine_option
def test(session: CommandSession, places: Sequence[str], engine: str | None) -> None:
    """Run the tests of SQL files in PLACES: files NAME.test.yaml, or folders; default: this one.

    Each test has rows of the tables that NAME.sql reads, and the rows that it then has to give.
    They run in a warehouse of their own. The exit code is 1 if a test fails.
    """
    from acid_platform.sql.sql_tests import SUFFIX, WrongRows, sql_tests, warehouse_of_tests

    tests = sql_tests(*(places or ["."]))
    if not tests:
        raise Failed(f"there is no file *{SUFFIX} in {', '.join(places) or 'this folder'}")
    failed = 0
    with warehouse_of_tests(engine) as warehouse:
        for each in tests:
            try:
                each.check(warehouse)
                why = ""
            except (WrongRows, AcidError) as error:
                why, failed = str(error), failed + 1
            session.say({"test": str(each), "error": why}, f"FAILED {why}" if why else f"ok {each}")
    if failed:
        raise Failed(f"{failed} of {len(tests)} tests failed")


def _script(script: str | None, file: str | None) -> str:
    """Raises UsageError unless there is one script, in UTF-8."""
    if (script is None) == (file is None):
        raise click.UsageError("give a SCRIPT, or -f FILE, or - for standard input")
    if script is not None and script != "-":
        return script
    try:
        with click.open_file(file or "-", encoding="utf-8-sig") as source:
            return str(source.read())
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the script is not in UTF-8: {error}") from error
