"""The database in memory in which the local engine computes, and which files it may read (P82)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import duckdb

from acid_platform.base.databases import with_directories
from acid_platform.base.first_use import PerProcess
from acid_platform.engine.local.translation.duckdb_sql import is_internal
from acid_platform.engine.local.translation.signatures import WANTED
from acid_platform.scan.kept_columns import usable_memory

MEMORY_SHARE = 0.25
"""The part of the machine's memory that queries may take before they spill to disk."""
MOST_BYTES = 1 << 30
"""More than this they don't take, on any machine."""


def connect(
    apart: bool = False, directories: frozenset[str] = frozenset()
) -> duckdb.DuckDBPyConnection:
    """A connection that sees nothing but files in these directories: what it registers is its own.

    All connections of this process share one empty database in memory, with its limit: to make a
    database takes 50 ms, to connect to it less than one. But the memory of a database goes back to
    the system only with the database: a statement that needs much before it writes has one `apart`.
    """
    shared = None if apart else _DATABASE.get()
    database = shared.reading(directories) if shared else new_database(directories)
    if WANTED:
        from acid_platform.engine.local.translation.batch_functions import add_functions

        add_functions(database, WANTED)
    return database.cursor() if shared else database


def new_database(directories: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
    """An empty database in memory, which can read no variable of this process, and no file but in
    these directories.

    Of a window's first rows DuckDB would keep the values as keys for sorting, in which -0.0 is 0.0.
    """
    limit = int(min(MOST_BYTES, usable_memory() * MEMORY_SHARE))
    return with_directories(
        directories,
        memory_limit=f"{limit >> 20}MB",
        disabled_optimizers="top_n_window_elimination",
    )


MOST_DIRECTORIES = 1000
"""From so many on the shared database forgets the directories of earlier queries."""


class SharedDatabase:
    """The database that connections share. To read files in more directories a new one takes its
    place: which ones it may read is said before it runs anything."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._directories = frozenset[str]()
        self._database: duckdb.DuckDBPyConnection | None = None

    def reading(self, directories: frozenset[str]) -> duckdb.DuckDBPyConnection:
        with self._guard:
            if self._database is None or not directories <= self._directories:
                few = len(self._directories) < MOST_DIRECTORIES
                self._directories = directories | self._directories if few else directories
                self._database = new_database(self._directories)
            return self._database

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


_DATABASE = PerProcess(SharedDatabase)


@contextmanager
def leaving_broken() -> Iterator[None]:
    """After an error inside of DuckDB, which invalidates its database, others get a new one. Ctrl-C
    ends what it computes as it ends whatever Python does."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":  # by a signal; `interrupt` has an error of its own
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        if is_internal(error):
            _DATABASE.close()
        raise
