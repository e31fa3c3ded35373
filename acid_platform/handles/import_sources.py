"""What `acid import` reads: the rows of somebody else, in batches of Arrow.

The library that owns a format reads it, and a source may be larger than memory. These libraries are
the extra `import` of the package. `lake_sources`, `folder_source` and `database_sources` have the
kinds of sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Self

import pyarrow as pa

from acid_platform.errors import AcidError, ImportRefused
from acid_platform.layout.types import Column

BATCH = 1 << 17
"""Rows of a batch, where a library asks."""


class ImportSource(ABC):
    """Rows that somebody else keeps. Making one looks at the source, but reads no row; `with` ends
    its connection.

    `columns`: which of its columns to read (None: all). A library's own error is raised as
    ImportRefused, which names the source.
    """

    name: str
    """The kind and the place, without credentials: under it a table remembers what it has got."""
    snapshot: str | None = None
    """What the source calls the snapshot that is read; None if it has no snapshots."""
    rows_known: int | None = None
    """How many rows it has, if it knows without reading them; for showing progress."""

    _connection: Any = None

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns, as a table is made for them. Those of `rows` may have other types."""

    @abstractmethod
    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        """All rows of the snapshot, for a table that has these columns."""

    def added(self, since: str) -> pa.RecordBatchReader:
        """The rows that were added after an earlier snapshot.

        Raises ImportRefused, naming the commit, unless all commits since then only added rows.
        """
        raise NotImplementedError(f"{self.name} has no snapshots, not even {since}")

    def close(self) -> None:
        """Ends the connection, if the source has one."""
        if self._connection is not None:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """What the reader reads. Raises ImportRefused for an error of the source."""
        with reader:
            while (batch := self._asked(lambda: next(reader, None))) is not None:
                yield batch

    def _asked(self, what: Callable[[], Any]) -> Any:
        """The library's answer. Raises ImportRefused for its errors, which have no common class."""
        try:
            return what()
        except AcidError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise ImportRefused(
                f"{self.name} can't be read: {type(error).__name__}: {text}; nothing was imported"
            ) from error

    def _library(self, module: str, package: str) -> Any:
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != module.partition(".")[0]:
                raise
            raise ImportRefused(
                f"{self.name} is read by the package {package}, which is not installed: pip install"
                " 'acid-platform[import]'"
            ) from error

    def _not_only_added(self, since: str, why: str) -> ImportRefused:
        return ImportRefused(
            f"{self.name}: {why}, so the rows of {self.snapshot} are not those of {since} and some"
            " more; to replace all rows of the table by those of the source, say --overwrite"
            " (overwrite=True)"
        )


def chosen_fields(schema: pa.Schema, columns: list[str] | None, source: str) -> pa.Schema:
    """Raises ImportRefused for a column that is not there."""
    if columns is None:
        return schema
    if missing := [name for name in columns if name not in schema.names]:
        raise ImportRefused(
            f"{source} has no column {missing[0]!r}; it has {', '.join(schema.names)}"
        )
    return pa.schema([schema.field(name) for name in columns])
