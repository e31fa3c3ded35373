"""What a transaction of another engine wrote, found on disk at its commit (P26, P34).

Nobody reports these writes. Every directory with the transaction's write id in the entities that it
locked is listed, each file's footer is read, and all of it is on disk before the commit (P27).

Trino writes all delete events of a table without buckets into `bucket_00000`. Trino and Hive test
the rows of a bucket only against the delete events in the file of the same number, so they would go
on showing the deleted rows of all other buckets: the events are moved into those files (P45)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import numpy as np

from acid_platform.errors import (
    AcidError,
    ConstraintViolated,
    CorruptFile,
    MalformedName,
    WriteConflict,
)
from acid_platform.formats.data_file import FilePath, FileWriter, Keyed, KeyPart, StoredKeys
from acid_platform.formats.file_access import (
    new_file,
    open_file,
    reading,
    written_codec,
)
from acid_platform.layout.acid_keys import bucket_numbers, codec_versions
from acid_platform.layout.formats import ACID_FORMAT, FileFormat, compression, is_insert_only
from acid_platform.layout.names import (
    BaseName,
    BucketFile,
    DeltaName,
    is_hidden,
    parse_bucket_file,
    parse_directory,
    parse_partition,
    partition_name,
    temporary_name,
)
from acid_platform.layout.types import Column
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import LockRequest, RegionReport, TableRecord, WriteReport
from acid_platform.scan.deletes import DeleteKeys, load_keys
from acid_platform.scan.row_regions import region_of_files, region_of_partition
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.durability import Ours, remove, sync_published
from acid_platform.storage.files import Files, asking
from acid_platform.tables.record_layout import columns_of_record, surveyed
from acid_platform.tables.table_constraints import row_checks
from acid_platform.transactions import RowOperation, TxnState, ValidWriteIdList
from acid_platform.transactions.row_sets import Region, united
from acid_platform.write.publishing import write_empty_file

_QUERY_OF_TRINO = re.compile(r"\d{8}_\d{6}_\d{5}_[a-z0-9]{5}", re.ASCII)
_DELETES = "delete_delta_"
_REPLACES = {RowOperation.UPDATE, RowOperation.DELETE, RowOperation.OVERWRITE}


def is_deletes(directory: str) -> bool:
    """Whether it holds delete events."""
    return directory.startswith(_DELETES)


def writes_of(metastore: Metastore, txn: int) -> list[WriteReport]:
    """A report of each directory that the open transaction published.

    Raises NoSuchTxn, TxnAborted, NoSuchTable, and for what can't be committed CorruptFile,
    MalformedName, UnsupportedLayout, WriteConflict, PublicationFailed.
    """
    reports: list[WriteReport] = []
    for touched in metastore.call(ops.GetTouched(txn)):
        if touched.write_id:
            reports += _of_table(metastore, touched)
    return reports


def looked_for(
    metastore: Metastore, txn: int, writes: Sequence[WriteReport]
) -> tuple[list[RegionReport], list[RegionReport]]:
    """The rows that the transaction looked for, as far as its locks tell, and those that it
    brought; nothing unless there are both (P51).

    A lock for UPDATE, DELETE or an overwrite is for all rows of its partition, or of the table; if
    all new rows are beside deleted ones, as those of an UPDATE are, of their partitions alone. Of
    other tables, a lock for SELECT says what a query has read. Updated rows count as new ones,
    since nobody knows which of their columns were assigned.
    """
    sought: list[tuple[str, Region]] = []
    inserted: list[tuple[str, Region]] = []
    records: dict[str, TableRecord] = {}
    kinds = [(write, is_deletes(write.directory)) for write in writes if write.rows]
    changed = {(write.table, write.partition) for write, deletes in kinds if deletes}
    new = {(write.table, write.partition) for write, deletes in kinds if not deletes}
    for touched in metastore.call(ops.GetTouched(txn)) if new else ():
        record = records.setdefault(touched.table, metastore.table(touched.table))
        _, keys = columns_of_record(record)
        replaced = [each.partition for each in touched.entities if each.operation in _REPLACES]
        updated, filled = ({p for t, p in some if t == touched.table} for some in (changed, new))
        if None in replaced and updated and filled <= updated:
            replaced = [*({*replaced} - {None} | updated)]
        sought += [
            (touched.table, region_of_partition(partition, keys))
            for partition in replaced or touched.read
        ]
    for write in writes:
        if write.rows and not is_deletes(write.directory):
            own, keys = columns_of_record(records[write.table])
            region = region_of_files(write.contents, own)
            both = region.both(region_of_partition(write.partition, keys))
            inserted.append((write.table, both))
    if not sought or not inserted:
        return [], []
    limit = metastore.in_force.integer("acid.conflict.rows.bytes") // 2
    told = (united(regions, limit) for regions in (sought, inserted))
    some, others = ([RegionReport(*region) for region in regions] for regions in told)
    return some, others


def discard_bases(metastore: Metastore, txn: int, writes: Sequence[WriteReport]) -> None:
    """Removes the bases of a transaction whose commit was refused; the Cleaner removes the rest.

    Trino takes each base for a compacted one: it reads no table that has only an aborted base.
    """
    if metastore.call(ops.GetTxnOutcome(txn)).state != TxnState.ABORTED.value:
        return
    for write in writes:
        if write.overwrite:
            with suppress(AcidError, OSError):
                files, root = Files.of(metastore.table(write.table).location)
                below = f"{write.partition or ''}/{write.directory}".lstrip("/")
                remove(files, root, below, Ours())


def says_when_written(request: Any, locks: Iterable[LockRequest]) -> bool:
    """Whether a writing statement of Trino asks for the locks, going by its query id (P47).

    Trino cleans up after each statement with a commit, also after one that failed, unless its
    rollback came first. Each file of such a statement is complete, but some are missing. Before it
    commits a statement that succeeded, Trino always sends the write id with the altered table or
    with the partitions that were filled; only then are all files written.
    """
    from_trino = _QUERY_OF_TRINO.fullmatch(request.agentInfo or "") is not None
    return from_trino and any(lock.operation is not RowOperation.SELECT for lock in locks)


def _of_table(metastore: Metastore, touched: ops.TouchedTable) -> Iterator[WriteReport]:
    record = metastore.table(touched.table)
    files, root = Files.of(record.location)
    published: list[str] = []
    for partition in _entities(files, root, record, touched):
        where = f"{root}/{partition}" if partition else root
        names = _directories(files, where, touched.write_id)
        if not names:
            continue
        if not touched.entities:
            raise WriteConflict(
                f"{where}/{names[0]} was written without a lock of {record.name} for writing"
            )
        if touched.unfinished:
            raise WriteConflict(
                f"{record.name}: the statement failed before all its files were written (Trino did"
                " not send its write id before the commit); run it again"
            )
        _require_locked_for(where, names, record, partition, touched)
        published += [f"{where}/{name}" for name in names]
        yield from _of_entity(files, record, partition, where, names)
    sync_published(files, root, published)


def _require_locked_for(
    where: str,
    names: Sequence[str],
    record: TableRecord,
    partition: str | None,
    touched: ops.TouchedTable,
) -> None:
    """Raises WriteConflict for delete events, and for a base, if the entity was locked for INSERT.

    Rights were asked for, and conflicts are found, by the operations of the locks. Hive locks for
    DELETE what an UPDATE writes, so new rows may come with any of them.
    """
    locked = {
        entity.operation for entity in touched.entities if entity.partition in (None, partition)
    }
    for name in names:
        if (is_deletes(name) or _is_base(name)) and not locked & _REPLACES:
            announced = " and ".join(sorted(lock.name for lock in locked)) or "nothing"
            raise WriteConflict(
                f"{where}/{name} is more than the lock of {record.name} was for ({announced});"
                " lock the table for UPDATE or DELETE, and run the statement again"
            )


def _entities(
    files: Files, root: str, record: TableRecord, touched: ops.TouchedTable
) -> Sequence[str | None]:
    """The partitions in which the transaction may have written; None for the table itself.

    A lock of a whole partitioned table stands for any of its partitions, also for such that are not
    registered yet.
    """
    if not record.partitioned:
        return [None]
    locked = [entity.partition for entity in touched.entities]
    if locked and None not in locked:
        return [partition for partition in locked if partition is not None]
    return files.partition_directories(root, len(record.partition_columns))


def _directories(files: Files, where: str, write_id: int) -> list[str]:
    """The ACID directories that hold exactly this write id, sorted. Raises MalformedName."""
    names = []
    for info in files.children(where):
        if info.is_file or is_hidden(info.base_name):
            continue
        parsed = parse_directory(info.base_name, info.path)
        if parsed is None or parsed.visibility:
            continue
        ids = {parsed.write_id} if isinstance(parsed, BaseName) else {parsed.low, parsed.high}
        if ids == {write_id}:
            names.append(info.base_name)
    return sorted(names)


def _of_entity(
    files: Files, record: TableRecord, partition: str | None, where: str, names: Sequence[str]
) -> Iterator[WriteReport]:
    """The reports of one entity. What kind of statement it was follows from the directories.

    A directory without a file is left out, unless it is a base, which empties the entity: it gets a
    file without rows, since Trino ignores directories without files (P32).
    """
    if not is_insert_only(record.properties):
        for name in names:
            _bucketed(files, f"{where}/{name}", rename=is_deletes(name))
            if is_deletes(name):
                _distributed(files, record, f"{where}/{name}")
    reports = _surveyed(files, record, partition, where, names)
    empty = [
        report.directory for report in reports if _is_base(report.directory) and not report.files
    ]
    for name in empty:
        _fill(files, record, f"{where}/{name}")
    if empty:
        reports = _surveyed(files, record, partition, where, names)
    bases = [report for report in reports if _is_base(report.directory)]
    deletes = [report for report in reports if is_deletes(report.directory)]
    inserts = [report for report in reports if report not in bases and report not in deletes]
    deletes, inserts = ([report for report in some if report.files] for some in (deletes, inserts))
    operation = RowOperation.INSERT
    if deletes:
        operation = RowOperation.UPDATE if inserts else RowOperation.DELETE
    for report in (*bases, *inserts, *deletes):
        _check(files, record, where, report)
        yield replace(report, operation=operation, overwrite=report in bases)


def _bucketed(files: Files, directory: str, rename: bool) -> None:
    """Calls files `bucket_N` that their engine called `bucket_N_M`, as Hive 4 does, with `rename`.

    Trino ignores the other name among deletes, and would show rows that were deleted (P43). Raises
    CorruptFile for two files of one bucket: one of them is an attempt that its writer gave up.
    """
    buckets: dict[int, BucketFile] = {}
    for info in files.children(directory):
        bucket = parse_bucket_file(info.base_name) if info.is_file else None
        if bucket is None:
            continue
        other = buckets.setdefault(bucket.bucket, bucket)
        if other is not bucket:
            raise CorruptFile(f"{directory}: {other} and {bucket} are two attempts of one bucket")
    for bucket in buckets.values():
        if rename and bucket.attempt is not None:
            usual = BucketFile(bucket.bucket)
            files.rename(f"{directory}/{bucket}", f"{directory}/{usual}")


def _distributed(files: Files, record: TableRecord, directory: str) -> None:
    """Each delete event in the file of its row's bucket (P45). Raises CorruptFile."""
    name = parse_directory(directory.rsplit("/", 1)[1])
    assert isinstance(name, DeltaName)
    for info in files.children(directory):
        if info.is_file and parse_bucket_file(info.base_name) is not None:
            require_own_rows(files, f"{directory}/{info.base_name}", name.high, deletes=True)
    columns, _ = columns_of_record(record)
    distribute(files, directory, name.high, columns, compression(record.properties))


def _surveyed(
    files: Files, record: TableRecord, partition: str | None, where: str, names: Sequence[str]
) -> list[WriteReport]:
    listing = files.entity(where, names)
    return surveyed(files, record, _normal(record, partition), listing, set(names))


def _fill(files: Files, record: TableRecord, directory: str) -> None:
    """Writes the file of an emptied entity, as this platform's own TRUNCATE does (P32)."""
    stored = FileFormat.of(record.properties)
    columns, _ = columns_of_record(record)
    with asking(directory):
        write_empty_file(files, directory, columns, compression(record.properties), stored)


def _is_base(directory: str) -> bool:
    return isinstance(parse_directory(directory), BaseName)


def _normal(record: TableRecord, partition: str | None) -> str | None:
    """The partition's name as it is registered; its directory must have the same.

    Raises MalformedName: another spelling would be another directory.
    """
    if partition is None:
        return None
    columns = [column for column, _ in record.partition_columns]
    values = parse_partition(partition, columns)
    normal = values and partition_name(dict(zip(columns, values, strict=True)))
    if normal != partition:
        raise MalformedName(
            f"{record.location}/{partition} is spelled {normal or 'otherwise'} in the metastore;"
            " write the partition's columns in lower case and in their order"
        )
    return normal


def _require_constraints(record: TableRecord, directory: str, report: WriteReport) -> None:
    """Raises ConstraintViolated unless the statistics of each file prove that all its rows fulfil
    the table's constraints."""
    checks = row_checks(record)
    if not checks.constraints:
        return
    from acid_platform.scan.recorded_ranges import proves  # the parser takes long

    own, _ = columns_of_record(record)
    for constraint in checks.constraints:
        for file in report.contents.files:
            if file.footer is not None and not file.footer.rows:
                continue
            if not proves(file.ranges, constraint.condition, own):
                raise ConstraintViolated(
                    f"the statistics of {directory}/{file.path} don't prove that its rows fulfil"
                    f" constraint {constraint.name} of {record.name}, {constraint}: write such rows"
                    " with this platform, or drop the constraint"
                )


def _check(files: Files, record: TableRecord, where: str, report: WriteReport) -> None:
    """Raises CorruptFile for a file that readers would refuse or misread, ConstraintViolated."""
    if not is_deletes(report.directory):
        _require_constraints(record, f"{where}/{report.directory}", report)
    if is_insert_only(record.properties):
        if FileFormat.of(record.properties).name in ("text", "json"):
            for file in report.contents.files:
                require_plain_text(files, f"{where}/{report.directory}/{file.path}")
        return
    name = parse_directory(report.directory)
    assert name is not None
    write_id = name.write_id if isinstance(name, BaseName) else name.high
    for file in report.contents.files:
        path = f"{where}/{report.directory}/{file.path}"
        require_own_rows(files, path, write_id, is_deletes(report.directory))


_BEGINNINGS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_ENDINGS = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".lzo")
_LOOKED_AT = 64 * 1024
"""Bytes."""


def require_plain_text(files: Files, path: str) -> None:
    """Raises CorruptFile for a file that is compressed, or holds a zero byte, as no text does."""
    with files.system.open_input_stream(path, compression=None) as stream:
        begin = stream.read(_LOOKED_AT)
    named = next((name for start, name in _BEGINNINGS.items() if begin.startswith(start)), None)
    if named or b"\0" in begin or path.endswith(_ENDINGS):
        raise CorruptFile(
            f"{path} is compressed{f' with {named}' if named else ''}, which readers of this table"
            " can't know: write it without, in Trino with SET SESSION <catalog>.compression_codec"
            " = 'NONE', in Hive with SET hive.exec.compress.output=false"
        )


def require_own_rows(files: Files, path: str, write_id: int, deletes: bool) -> None:
    """Raises CorruptFile if the file lacks the six ACID columns, or names another write id (P34).

    Snapshots choose files by the write id in a directory's name, so a row with another write id
    would be seen by too many of them or by too few. A delete event names the write id of the row
    that it deletes, and its own as the current one.
    """
    with reading(path):
        file = open_file(files, FilePath(path), strange=True)
        names = file.key_columns
        if not file.rows:
            return
        parts = (KeyPart.CHANGED_BY,) if deletes else (KeyPart.WRITE_ID, KeyPart.CHANGED_BY)
        for part in parts:
            low, high = file.bounds(part)
            if (low, high) != (write_id, write_id):
                raise CorruptFile(
                    f"{path} has rows whose {names[part]} is {low} to {high}, and its transaction"
                    f" has the write id {write_id}; run the statement again"
                )


def distribute(
    files: Files, directory: str, write_id: int, columns: Sequence[Column], compression: str
) -> None:
    """Moves the delete events of `directory` into the files of their rows' buckets.

    The files are called `bucket_N`, and all of their events have the write id. If this is
    interrupted, no event is lost, and it may be repeated. Raises CorruptFile.
    """
    paths = _bucket_files(files, directory)
    mixed = [number for number, path in paths.items() if not _is_pure(files, path, number)]
    if not mixed:
        return
    if len(mixed) > 1:  # one has to lose events before the other has got them
        first, second = (paths[number] for number in mixed[:2])
        raise CorruptFile(
            f"{first} and {second} both have delete events of other buckets; run the statement"
            " again"
        )
    keys = _keys(files, paths, directory, write_id)
    numbers = bucket_numbers(keys.buckets)  # of each word
    codec = written_codec(compression)
    others = sorted(set(np.unique(numbers).tolist()) - set(mixed))
    for number in (*others, *mixed):  # the file that loses events comes last
        name = str(BucketFile(number))
        path = f"{directory}/{name}"
        if not files.object_store:
            files.delete_file(f"{directory}/.{name}.crc")  # Hadoop's checksum of the old content
        chosen = numbers == number
        if not chosen.any():
            files.delete_file(path)
            continue
        written = path if files.object_store else f"{directory}/{temporary_name(0, uuid4().hex)}"
        writer = new_file(files, written, columns, ACID_FORMAT, codec, deletes=True)
        with asking(path):
            _write(writer, keys, chosen, write_id)
        if written != path:
            files.rename(written, path)


def _bucket_files(files: Files, directory: str) -> dict[int, str]:
    """The path of each bucket's file."""
    names = (info.base_name for info in files.children(directory) if info.is_file)
    buckets = {name: parse_bucket_file(name) for name in names}
    numbers = {bucket.bucket: name for name, bucket in buckets.items() if bucket is not None}
    return {number: f"{directory}/{name}" for number, name in sorted(numbers.items())}


def _is_pure(files: Files, path: str, number: int) -> bool:
    """Whether all events are of rows of the bucket, by the statistics of the footer if it has them.

    Raises CorruptFile.
    """
    with reading(path):
        file = open_file(files, FilePath(path), strange=True)
        if file.key_columns and not file.rows:
            return True
        properties = np.array(file.bounds(KeyPart.BUCKET))
    # Between two properties of one version are only those of the bucket numbers between.
    one_version = len(set(codec_versions(properties).tolist())) == 1
    return one_version and bool((bucket_numbers(properties) == number).all())


def _keys(files: Files, paths: Mapping[int, str], directory: str, write_id: int) -> DeleteKeys:
    sources = [
        SourceFile(
            path,
            RowIdentity.STORED,
            files.system.get_file_info(path).size,
            directory.rsplit("/", 1)[1],
            write_id,
            write_id,
        )
        for path in paths.values()
    ]
    return load_keys(files, sources, ValidWriteIdList.of("", write_id))


def _write(writer: FileWriter, keys: DeleteKeys, chosen: np.ndarray, write_id: int) -> None:
    try:
        for part in keys.chosen(chosen).parts():
            writer.put(Keyed(StoredKeys(*part), write_id, None))
        writer.close()
    except BaseException:
        writer.give_up()
        raise
