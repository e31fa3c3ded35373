"""The prompt of `acid sql`: statements end with a semicolon, its own commands begin with a
backslash.

Lines are edited, kept and completed by prompt_toolkit. A line that begins with a blank is not kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from acid_platform.base.interrupts import heeding_signals
from acid_platform.base.paths import user_path
from acid_platform.cli.console import echo, told
from acid_platform.cli.sql_output import FORMATS
from acid_platform.display.progress_bar import progress
from acid_platform.errors import AcidError
from acid_platform.layout.sql_text import pieces, quoted

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

    from acid_platform.cli.sql_output import Output
    from acid_platform.handles.warehouse import Warehouse

HELP = r"""\?            this text
\l            databases
\d            tables of this database
\d NAME       columns of a table or view
\i FILE       run the script in FILE
\format FORM  show rows as table, markdown, json or csv
\timing       tell of each statement how long it took, or no longer
\q            end (also Ctrl-D)
Statements end with a semicolon and may have several lines. Tab completes words, names of tables and
of their columns; Ctrl-C stops a statement, or forgets what was typed; Ctrl-R looks for a line."""
_WORDS = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT RIGHT FULL OUTER CROSS ON USING
UNION ALL INTERSECT EXCEPT DISTINCT AS AND OR NOT NULL IS IN BETWEEN LIKE CASE WHEN THEN ELSE
END WITH OVER PARTITION ROWS EXISTS INSERT INTO OVERWRITE VALUES UPDATE SET DELETE MERGE MATCHED
CREATE REPLACE TABLE VIEW DATABASE PARTITIONED STORED TBLPROPERTIES ALTER ADD COLUMNS RENAME
DROP IF TRUNCATE SHOW TABLES DATABASES DESCRIBE EXPLAIN USE START TRANSACTION COMMIT ROLLBACK
ANALYZE COMPACT TIMESTAMP DATE CAST
"""


def is_complete(text: str) -> bool:
    """Whether Enter ends what was typed: a command, or statements up to a semicolon that is not in
    quotes or a comment."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    try:
        parts = [part for part in pieces(text, several=True) if part.strip()]
    except AcidError:  # a comment that is not closed yet
        return False
    return bool(parts) and parts[-1] == ";" and not any(quote in parts for quote in "'\"`")


class NameCompleter(Completer):
    """Completes words of SQL, names of databases and tables, and columns of tables that the text
    names."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002
    ) -> Iterator[Completion]:
        typed = document.get_word_before_cursor(WORD=True).rpartition("(")[2].rpartition(",")[2]
        with suppress(AcidError):  # nothing is completed while the metastore is away
            for name in self._names(document.text):
                if name.lower().startswith(typed.lower()) and name != typed:
                    yield Completion(name, -len(typed))
        for word in _WORDS.split() if typed else ():
            if word.startswith(typed.upper()):
                yield Completion(word if typed[-1:].isupper() else word.lower(), -len(typed))

    def _names(self, text: str) -> list[str]:
        """Columns of the tables in the text, or of all in this database, and names of tables."""
        current = f"{self._warehouse.session.current_database}."
        words = {word.strip("`(),;").lower() for word in text.split()}
        records = {record.name: record for record in self._warehouse.metastore.tables()}
        short = {name: name.removeprefix(current) for name in records}
        named = [name for name in records if words & {name, short[name]}]
        columns = dict[str, None]()
        for name in named or [name for name in records if name != short[name]]:
            record = records[name]
            columns |= dict.fromkeys(name for name, _ in record.columns + record.partition_columns)
        return [*columns, *sorted(dict.fromkeys([*short.values(), *records]))]


class Shell:
    """Reads statements and commands until the user ends it, and shows each answer.

    An error ends the statements that were typed at once, and nothing else.
    """

    def __init__(self, warehouse: Warehouse, output: Output, engine: str | None = None) -> None:
        self._warehouse, self._output, self._engine = warehouse, output, engine
        self._timing, output.paged = True, True

    def run(self) -> None:
        keys = KeyBindings()
        prompt: PromptSession[str] = PromptSession(
            history=_history(),
            completer=NameCompleter(self._warehouse),
            complete_while_typing=False,
            multiline=True,
            key_bindings=keys,
            prompt_continuation=lambda width, *_: "> ".rjust(width),
        )
        complete = Condition(lambda: is_complete(prompt.default_buffer.text))

        @keys.add("enter", filter=complete)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        echo(r"\? tells the commands, \q ends; statements end with ;")
        while True:
            session = self._warehouse.session
            mark = "*" if session.in_transaction else ""
            try:
                text = prompt.prompt(f"{session.current_database}{mark}> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                text = r"\q"
            if text.strip() == r"\q":
                if session.in_transaction:
                    echo("the open transaction is rolled back", err=True)
                return
            self._answer(text.strip())

    def _answer(self, text: str) -> None:
        try:
            with heeding_signals():
                if text.startswith("\\"):
                    self._command(*text[1:].rstrip(";").split(maxsplit=1))
                elif text:
                    self._run(text)
        except AcidError as error:
            echo(f"error: {told(error)}", err=True)
        except KeyboardInterrupt:
            echo("stopped", err=True)

    def _command(self, name: str = "?", argument: str = "") -> None:
        run: dict[str, Callable[[], object]] = {
            "?": lambda: echo(HELP),
            "l": lambda: self._run("SHOW DATABASES"),
            "d": lambda: self._run(f"DESCRIBE {_named(argument)}" if argument else "SHOW TABLES"),
            "i": lambda: self._script(argument),
            "format": lambda: self._take_form(argument),
            "timing": self._take_timing,
        }
        run.get(name, lambda: echo(rf"\{name} is no command; \? tells those there are", err=True))()

    def _take_form(self, form: str) -> None:
        if form not in FORMATS or form == "parquet":
            echo(rf"\format takes table, markdown, json or csv, not {form or 'nothing'}", err=True)
            return
        self._output.form = form

    def _take_timing(self) -> None:
        self._timing = not self._timing
        echo(f"timing is {'on' if self._timing else 'off'}")

    def _script(self, file: str) -> None:
        try:
            text = Path(user_path(file)).read_text("utf-8-sig") if file else ""
        except (OSError, UnicodeDecodeError) as error:
            echo(f"error: {file} can't be read: {error}", err=True)
            return
        if not text:
            echo(r"\i takes the name of a file with statements", err=True)
            return
        self._run(text)

    def _run(self, text: str) -> None:
        began = time.perf_counter()
        with progress():
            for _, answer in self._warehouse.session.steps(text, self._engine):
                rows = self._output.show(answer)
                if self._timing:
                    number = "" if rows is None else f"{rows:,} row{'s' * (rows != 1)}, "
                    engine = getattr(answer, "engine", "")
                    told_engine = f", {engine}" if engine else ""
                    seconds = time.perf_counter() - began
                    echo(f"({number}{seconds:.3f} s{told_engine})", err=True)
                began = time.perf_counter()


def _named(name: str) -> str:
    return ".".join(quoted(part.strip("`")) for part in name.split("."))


def _history() -> History:
    """What was typed in earlier sessions, in a file that only its user can read."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "acid" / "sql_history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)
    except OSError:  # no home, or a disk that is full or read-only
        return InMemoryHistory()
    return _Kept(str(path))


class _Kept(FileHistory):
    def store_string(self, string: str) -> None:
        if not string.startswith(" "):
            with suppress(OSError):
                super().store_string(string)
