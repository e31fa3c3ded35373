"""Delete events of another engine, in the files of their rows' buckets (P45).

Trino writes all delete events of a table without buckets into `bucket_00000`. Trino and Hive test
the rows of a bucket only against the delete events in the file of the same number, so they would
go on showing the deleted rows of all other buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

import numpy as np

from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import FilePath, FileWriter
from acid_platform.formats.file_access import (
    BATCH_ROWS,
    new_file,
    open_file,
    reading,
    written_codec,
)
from acid_platform.formats.keyed import Keyed, KeyPart, StoredKeys
from acid_platform.layout.names import BucketFile, parse_bucket_file, temporary_name
from acid_platform.layout.schema import bucket_numbers, codec_versions
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import DeleteKeys, load_keys
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files, asking
from acid_platform.transactions import ValidWriteIdList


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
    numbers = bucket_numbers(keys.buckets)
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
        writer = new_file(files, written, columns, None, codec, deletes=True)
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
    ids = [part[chosen] for part in (keys.write_ids, keys.buckets, keys.row_ids)]
    try:
        for start in range(0, len(ids[0]), BATCH_ROWS):
            part = StoredKeys(*(each[start : start + BATCH_ROWS] for each in ids))
            writer.put(Keyed(part, write_id, None))
        writer.close()
    except BaseException:
        writer.give_up()
        raise
