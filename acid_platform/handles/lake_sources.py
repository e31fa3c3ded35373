"""Tables of Iceberg and Delta, whose snapshots tell which rows were added since an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform.base.local_files import require_own
from acid_platform.base.paths import as_uri, is_uri, user_path
from acid_platform.errors import ImportRefused
from acid_platform.formats.parquet_files import batches_of, open_parquet, require_bounded
from acid_platform.handles import iceberg_tables
from acid_platform.handles.import_sources import ImportSource, OwnFiles, chosen_fields
from acid_platform.layout.types import Column


class IcebergSource(ImportSource):
    """`IcebergSource("shop.customers")`: a table of a catalog that pyiceberg's own configuration
    describes, or the table of a metadata file, `lake/t/metadata/00002-….metadata.json`.

    `snapshot`: the id of another snapshot than the current one. `files_in`: places besides the
    table's own where its files may lie.
    """

    def __init__(
        self,
        table: str,
        catalog: str = "default",
        snapshot: int | None = None,
        columns: Sequence[str] | None = None,
        files_in: Sequence[str] = (),
    ) -> None:
        self.name = f"iceberg {table}"
        self._library("pyiceberg.table", "pyiceberg")
        if "/" not in table:
            if Path(_CONFIGURATION).exists():
                require_own(Path.cwd(), _CONFIGURATION)
            self._connection = self._asked(lambda: iceberg_tables.catalog_of(catalog))
        try:
            self._table: Any = self._asked(
                lambda: (
                    iceberg_tables.of_file(as_uri(user_path(table)))
                    if self._connection is None
                    else iceberg_tables.of_catalog(self._connection, table, files_in)
                )
            )
            self.name = f"iceberg {self._table.location()}"
            places = (self._asked(lambda: iceberg_tables.place_of(self._table)), *files_in)
            self._own = OwnFiles(self.name, places)
            self._columns = tuple(columns or ("*",))
            current = self._table.current_snapshot() if snapshot is None else None
            number = current.snapshot_id if current else snapshot
            if number is None:
                raise ImportRefused(f"{self.name} has no snapshot: it is empty")
            self._snapshot = self._found(number)
        except BaseException:
            self.close()
            raise
        self.snapshot = str(number)
        with suppress(KeyError, TypeError, ValueError):
            self.rows_known = int(self._snapshot.summary["total-records"])

    @property
    def schema(self) -> pa.Schema:
        return self._asked(lambda: self._scan().projection().as_arrow())

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self._asked(
            lambda: iceberg_tables.rows_of(self._table, self._scan(), [self._snapshot], self._own)
        )

    def added(self, since: str) -> pa.RecordBatchReader:
        snapshot, number = self._snapshot, int(since)
        read = []
        while snapshot.snapshot_id != number:
            operation = snapshot.summary.operation.value if snapshot.summary else "unknown"
            # `replace` writes files again and changes no row.
            if operation not in ("append", "replace"):
                raise self._not_only_added(
                    since, f"its snapshot {snapshot.snapshot_id} is {operation}"
                )
            if snapshot.parent_snapshot_id is None:
                raise self._not_only_added(since, f"{since} is no ancestor of {self.snapshot}")
            read.append(snapshot)
            snapshot = self._found(snapshot.parent_snapshot_id)
        scan = self._asked(
            lambda: self._table.incremental_append_scan(
                from_snapshot_id_exclusive=number,
                to_snapshot_id_inclusive=self._snapshot.snapshot_id,
                selected_fields=self._columns,
            )
        )
        return self._asked(lambda: iceberg_tables.rows_of(self._table, scan, read, self._own))

    def _scan(self) -> Any:
        return self._table.scan(
            snapshot_id=self._snapshot.snapshot_id, selected_fields=self._columns
        )

    def _found(self, number: int) -> Any:
        found = self._table.snapshot_by_id(number)
        if found is None:
            raise ImportRefused(
                f"{self.name} has no snapshot {number}, or no more; import the current one, with"
                " --overwrite (overwrite=True) if the table has rows"
            )
        return found


class DeltaSource(ImportSource):
    """`DeltaSource("lake/customers")`: a Delta table at a path or URI, as delta-rs opens it.

    `version`: another one than the newest. `files_in`: places besides the table's own to which
    links in it may lead.
    """

    def __init__(
        self,
        table: str,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        files_in: Sequence[str] = (),
    ) -> None:
        self.name = f"delta {table}"
        library = self._library("deltalake", "deltalake")
        self._open: Callable[..., Any] = library.DeltaTable
        self._place = user_path(table).rstrip("/")
        self._own = OwnFiles(self.name, (self._place, *files_in))
        self._asked(self._require_bounded_log)
        self._table: Any = self._asked(lambda: self._open(self._place, version=version))
        self.name = f"delta {self._table.table_uri.rstrip('/')}"
        self._columns = None if columns is None else list(columns)
        self._id = str(self._table.metadata().id)[:8]  # another one has other rows at its versions
        self.snapshot = f"{self._table.version()}@{self._id}"
        self._dataset: Any = self._asked(self._table.to_pyarrow_dataset)
        self._require_own(self._dataset)
        chosen_fields(self._dataset.schema, self._columns, self.name)
        with suppress(KeyError, TypeError):
            records = pa.table(self._table.get_add_actions()).column("num_records").to_pylist()
            self.rows_known = sum(records)

    @property
    def schema(self) -> pa.Schema:
        return chosen_fields(self._dataset.schema, self._columns, self.name)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self._rows_of(self._dataset.get_fragments())

    def added(self, since: str) -> pa.RecordBatchReader:
        number, _, own = since.partition("@")
        first, last = int(number), int(self._table.version())
        if own != self._id:
            raise self._not_only_added(since, f"the table was made again with the id {self._id}")
        if first > last:
            raise self._not_only_added(since, f"version {first} is newer than {last}")
        commits = {int(commit["version"]): commit for commit in self._asked(self._table.history)}
        fragments: list[Any] = []
        after = self._files(first)
        for version in range(first + 1, last + 1):
            before, after = after, self._files(version)
            operation = str(commits.get(version, {}).get("operation", "unknown"))
            if operation in _NO_ROW_CHANGED:
                continue
            # Deletion vectors, which change a file in place, are refused by `to_pyarrow_dataset`.
            if before.keys() - after.keys():
                raise self._not_only_added(since, f"its version {version} is {operation}")
            fragments += [after[path] for path in sorted(after.keys() - before.keys())]
        return self._rows_of(fragments)

    def _rows_of(self, fragments: Iterable[Any]) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(fragments))

    def _batches(self, fragments: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """The rows of these files, a bounded part at a time: Arrow's own scanner reads a row group
        as a whole, however much its few bytes unpack to (P65)."""
        from pyarrow import dataset

        schema, partitioned = self.schema, {*self._table.metadata().partition_columns}
        for fragment in fragments:
            keys = dataset.get_partition_keys(fragment.partition_expression)
            with self._opened(fragment) as stream:
                path = f"{self._place}/{fragment.path}"
                file = open_parquet(stream, path)
                stored = {*file.schema_arrow.names} - partitioned
                names = [name for name in schema.names if name in stored]
                for batch in batches_of(file, names):
                    columns = [
                        batch.column(field.name).cast(field.type)
                        if field.name in stored
                        else pa.repeat(pa.scalar(keys.get(field.name), field.type), batch.num_rows)
                        for field in schema
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    @contextmanager
    def _opened(self, fragment: Any) -> Iterator[pa.NativeFile]:
        if is_uri(self._place):
            with fragment.filesystem.open_input_file(fragment.path) as stream:
                yield stream
        else:
            with (
                self._own.opened(f"{self._place}/{fragment.path}") as held,
                pa.OSFile(held) as stream,
            ):
                yield stream

    def _require_bounded_log(self) -> None:
        """Raises CorruptFile for a checkpoint that delta-rs would unpack to more than a file may
        take, ImportRefused for a link to one elsewhere."""
        log = Path(self._place) / "_delta_log"
        for path in [] if is_uri(self._place) else sorted(log.rglob("*.parquet")):
            with self._own.opened(str(path)) as held, pa.OSFile(held) as stream:
                require_bounded(stream, str(path))

    def _files(self, version: int) -> dict[str, Any]:
        """The files of a version by their paths."""
        opened = self._asked(
            lambda: self._open(self._place, version=version).to_pyarrow_dataset(
                schema=self._dataset.schema
            )
        )
        self._require_own(opened)
        return {fragment.path: fragment for fragment in opened.get_fragments()}

    def _require_own(self, opened: Any) -> None:
        """delta-rs opens no file outside of the table's directory, but follows links."""
        self._own.require_all(
            f"{self._place}/{fragment.path}" for fragment in opened.get_fragments()
        )


_CONFIGURATION = ".pyiceberg.yaml"
"""What pyiceberg also reads in the current directory."""
_NO_ROW_CHANGED = ("OPTIMIZE", "VACUUM START", "VACUUM END")
"""Operations of Delta that write or remove files, and change no row."""
