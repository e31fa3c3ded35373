"""An archive of the journal: segments of it, and backups from which they go on (P40).

The archive is a local directory, or a prefix of an object store. Below it, each history of a
metastore has a directory: the backups (`base-…`) and segments (`segment-…`) of one sequence of
events. A file's name tells term, events, moment and the checksum of the content, so a file never
changes, and listing them is enough to know what can be restored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from isal import isal_zlib

from acid_platform.base.disk import make_directory, sync_path
from acid_platform.errors import AcidError, BackupRefused
from acid_platform.metastore.server.journal import Record

if TYPE_CHECKING:
    from pyarrow import fs

_NAME = re.compile(
    r"(?P<kind>base|segment)-(?P<term>\d+)-(?P<first>\d{12,})-(?P<last>\d{12,})"
    r"-(?P<made>\d+)-(?P<digest>[0-9a-f]{16})\.(?:duckdb|gz)"
)
_HISTORY = re.compile(r"[0-9a-f]{16}")
_GZIP = 31
_PART = 1 << 20
BASE, SEGMENT = "base", "segment"


@dataclass(frozen=True, slots=True)
class Item:
    """A file of the archive."""

    kind: str
    history: str
    term: int
    """The term of the primary: a promoted standby has a higher one."""
    first: int
    """The number of the first event; of a backup 1."""
    last: int
    made: int
    """Milliseconds UTC. It holds all events up to this moment, except for those before `first`."""
    digest: str
    size: int = 0

    @property
    def name(self) -> str:
        suffix = "gz" if self.kind == SEGMENT else "duckdb"
        return (
            f"{self.kind}-{self.term}-{self.first:012}-{self.last:012}-{self.made}-{self.digest}"
            f".{suffix}"
        )

    @classmethod
    def parse(cls, history: str, name: str, size: int = 0) -> Item | None:
        """None if it is no file of an archive."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        term, first, last, made = (int(found[key]) for key in ("term", "first", "last", "made"))
        return cls(found["kind"], history, term, first, last, made, found["digest"], size)


def digest(parts: Iterable[bytes]) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()[:16]


# --- segments -----------------------------------------------------------------------------------


def segment(history: str, term: int, made: int, records: Sequence[Record]) -> tuple[Item, bytes]:
    """The file that holds these consecutive batches."""
    first, last = records[0].first, records[-1].last
    lines = [_head(history, term, first, last)]
    lines += [f"{record.first} {record.last} {record.text}" for record in records]
    content = isal_zlib.compress("\n".join(lines).encode(), level=1, wbits=_GZIP)
    return Item(SEGMENT, history, term, first, last, made, digest([content])), content


def batches(item: Item, content: bytes) -> list[Record]:
    """The batches of a segment. Raises BackupRefused if it is damaged."""
    try:
        if digest([content]) != item.digest:
            raise ValueError("its checksum is wrong")
        head, *lines = zlib.decompress(content, wbits=_GZIP).decode().split("\n")
        if head != _head(item.history, item.term, item.first, item.last):
            raise ValueError("it has the name of another segment")
        records = [_record(line) for line in lines]
        if [item.first, *(record.last + 1 for record in records)] != [
            *(record.first for record in records),
            item.last + 1,
        ]:
            raise ValueError("it does not hold the events of its name")
    except (ValueError, zlib.error) as error:
        raise BackupRefused(
            f"the segment {item.history}/{item.name} is damaged: {error}; put back the file, or"
            f" restore with --until {item.first - 1}"
        ) from error
    return records


def moment_of(record: Record) -> int:
    """When the batch was decided, in milliseconds UTC."""
    return int(json.loads(record.text)[-1][1])


def _head(history: str, term: int, first: int, last: int) -> str:
    fields = {"history": history, "term": term, "first": first, "last": last}
    return "acid metastore segment 1 " + json.dumps(fields)


def _record(line: str) -> Record:
    first, last, text = line.split(" ", 2)
    return Record(int(first), int(last), text)


# --- the place ----------------------------------------------------------------------------------


class Archive:
    """The files at a path or URI. Raises BackupRefused for a URI that can't be used."""

    def __init__(self, where: str) -> None:
        from pyarrow import fs  # not loaded by every metastore

        from acid_platform.base.object_store import SCHEMES, open_s3

        self.where = where
        self._root: Path | None = None
        if "://" not in where or where.startswith("file://"):
            path = Path(where.removeprefix("file://")).expanduser()
            if not path.is_absolute():
                raise BackupRefused(f"the archive {where} must be an absolute path or a URI")
            self._root = path
            self._system: fs.FileSystem = fs.LocalFileSystem()
            self._path = str(path)
            return
        try:
            if where.partition("://")[0] in SCHEMES:
                self._system, self._path = open_s3(where)
            else:
                self._system, self._path = fs.FileSystem.from_uri(where)
        except (AcidError, ValueError, NotImplementedError, OSError) as error:
            raise BackupRefused(f"the archive {where} can't be used: {error}") from error

    def items(self, history: str = "") -> list[Item]:
        """What is archived of one history, or of all, in no order. Raises OSError."""
        from pyarrow import fs

        found = self._system.get_file_info(
            fs.FileSelector(f"{self._path}/{history}".rstrip("/"), True, recursive=True)
        )
        items = []
        for info in found:
            path = PurePosixPath(info.path)
            directory, name = path.parent.name, path.name
            item = Item.parse(directory, name, info.size or 0)
            if item is not None and info.is_file and _HISTORY.fullmatch(directory):
                items.append(item)
        return items

    def put(self, item: Item, source: Path) -> None:
        """Copies a file into the archive, whole or not at all, durably. Raises OSError."""
        target = self._of(item)
        if self._root is not None:
            directory = self._root / item.history
            make_directory(directory, 0o700)
            draft = directory / f".{item.name}.part"
            shutil.copyfile(source, draft)
            draft.chmod(0o600)
            sync_path(draft)
            os.rename(draft, target)
            sync_path(directory)
            return
        # Arrow would compress the file again because of its name.
        stream = self._system.open_output_stream(target, compression=None)
        with source.open("rb") as file, stream as out:
            while part := file.read(_PART):
                out.write(part)

    def read(self, item: Item) -> bytes:
        """Raises BackupRefused if the file is gone, OSError."""
        try:
            with self._system.open_input_stream(self._of(item), compression=None) as file:
                return bytes(file.read())
        except FileNotFoundError as error:
            raise BackupRefused(f"{item.history}/{item.name} is gone; list the archive") from error

    def fetch(self, item: Item, target: Path) -> None:
        """Copies a backup out of the archive. Raises BackupRefused if it is damaged, OSError."""
        sums = hashlib.sha256()
        with (
            self._system.open_input_stream(self._of(item), compression=None) as file,
            open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out,
        ):
            while part := file.read(_PART):
                sums.update(part)
                out.write(part)
        if sums.hexdigest()[:16] != item.digest:
            raise BackupRefused(
                f"the backup {item.history}/{item.name} is damaged: its checksum is wrong; put back"
                " the file, or remove it: an older backup and the segments after it then serve"
            )

    def remove(self, item: Item) -> None:
        """Raises OSError."""
        self._system.delete_file(self._of(item))

    def _of(self, item: Item) -> str:
        return f"{self._path}/{item.history}/{item.name}"
