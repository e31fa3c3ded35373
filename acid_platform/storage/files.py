"""Directories and small files of a warehouse, addressed through pyarrow.fs.

Paths are absolute within one file system and "/"-separated. Nothing here relies on an atomic rename
of a visible directory: a delta is invisible until the metastore commits it. An object store has no
directories: a key such as `t/delta_1/bucket_0` makes them seem to be there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar
from urllib.parse import quote, urlparse

import pyarrow as pa
from pyarrow import fs

from acid_platform.base.object_store import BY_SCHEME, store_fault, store_of
from acid_platform.errors import (
    CorruptFile,
    InvalidDefinition,
    StoreUnavailable,
    UnsupportedLayout,
    WarehouseNotWritable,
)
from acid_platform.layout import names
from acid_platform.layout.file_entries import EntityListing, FileEntry
from acid_platform.layout.names import partition_segment

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_THREADS = 8
"""How many calls wait for a file system at a time."""
_AT_ONCE = 8 << 20
"""The largest file, in bytes, that is fetched from an object store by one request."""
_NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
_LARGEST_MARKER = 16 << 20
_COPIED_BYTES = 16 << 20
"""What a copy through this process holds in memory."""


@dataclass(frozen=True, slots=True)
class Files:
    """One file system; `scheme` is empty for the local file system, else e.g. `s3`. `host` is that
    of the account, in a store whose URIs name one."""

    system: fs.FileSystem
    scheme: str = ""
    host: str = ""

    @classmethod
    def of(cls, location: str) -> tuple[Files, str]:
        """The file system of a path or URI, and the path inside it.

        Raises InvalidDefinition for a URI without a bucket, StoreRefused, StoreUnavailable.
        """
        if "://" not in location and not location.startswith("file:"):
            return cls(fs.LocalFileSystem()), location.rstrip("/") or "/"
        scheme = location.partition("://")[0]
        store = BY_SCHEME.get(scheme)
        if store and store.open:
            system, path = store.open(location)
            host = location.partition("@")[2].partition("/")[0] if store.accounts else ""
            return cls(system, scheme, host), path
        # Spark takes paths verbatim; Arrow wants special characters, as in `p=a b`, escaped.
        uri = quote(_NO_ESCAPE.sub("%25", location), safe="%/:?&=@,;+~!$'()*")
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise InvalidDefinition(
                f"{location} is in no file system that can be opened here: {error}"
            ) from error
        local = isinstance(system, fs.LocalFileSystem)
        return cls(system, "" if local else urlparse(location).scheme), path.rstrip("/")

    @property
    def local(self) -> bool:
        return isinstance(self.system, fs.LocalFileSystem)

    @property
    def object_store(self) -> bool:
        """Whether it has keys instead of directories: then nothing can be renamed."""
        return store_of(self.system) is not None

    def uri(self, path: str) -> str:
        """The URI to give to Spark; local paths get a scheme, so that no default applies."""
        if self.host:
            container, slash, rest = path.partition("/")
            path = f"{container}@{self.host}{slash}{rest}"
        return f"{self.scheme}://{path}" if self.scheme else f"file://{path}"

    # --- inspecting ------------------------------------------------------------------------
    # Everything that asks a store raises StoreRefused and StoreUnavailable.

    def exists(self, path: str) -> bool:
        return bool(self._kind(path) != fs.FileType.NotFound)

    def is_directory(self, path: str) -> bool:
        return bool(self._kind(path) == fs.FileType.Directory)

    def _kind(self, path: str) -> fs.FileType:
        with asking(path):
            return self.system.get_file_info(path).type

    def children(self, path: str) -> list[fs.FileInfo]:
        """Direct children; empty if the directory does not exist."""
        return self.listed(path, recursive=False)

    def below(self, path: str) -> list[fs.FileInfo]:
        """All files and directories below it; empty if the directory does not exist."""
        return self.listed(path, recursive=True)

    def listed(self, path: str, recursive: bool) -> list[fs.FileInfo]:
        store = store_of(self.system)
        whole = store is not None and not store.lists_directories
        selector = fs.FileSelector(path, allow_not_found=True, recursive=recursive or whole)
        with asking(path):
            found = list(self.system.get_file_info(selector))
        if not whole:
            return found
        named = {info.path: info for info in found}
        for info in found:
            above = info.path.rpartition("/")[0]
            while len(above) > len(path) and above not in named:
                named[above] = fs.FileInfo(above, fs.FileType.Directory)
                above = above.rpartition("/")[0]
        return [
            info for name, info in named.items() if recursive or "/" not in name[len(path) + 1 :]
        ]

    def below_strange(self, path: str) -> Iterator[fs.FileInfo]:
        """As `below`, where others made the directory. Raises UnsupportedLayout for one that has
        two names there, as by links: rows would count twice, and a few in a circle never end."""
        if not self.local:
            yield from self.below(path)
            return
        seen, directories = dict[tuple[int, int], str](), [path]
        while directories:
            directory = directories.pop()
            try:
                told = os.stat(directory)
            except FileNotFoundError:
                continue
            other = seen.setdefault((told.st_dev, told.st_ino), directory)
            if other != directory:
                raise UnsupportedLayout(
                    f"{directory} is the same directory as {other}, and its files would be listed"
                    " more than once; remove the link"
                )
            selector = fs.FileSelector(directory, allow_not_found=True)
            for info in self.system.get_file_info(selector):
                yield info
                if info.type == fs.FileType.Directory:
                    directories.append(info.path)

    def entity(self, path: str, only: Sequence[str] | None = None) -> EntityListing:
        """List everything below one entity's directory, as the input of `snapshot.select`.

        `only` names the directories in it that are listed, None all.

        Hidden names are left out, but each base's `_metadata_acid` and the first version file are
        read, as Trino does. Directories that the Cleaner removes meanwhile are skipped: they are
        obsolete for every open snapshot. Raises CorruptFile, and UnsupportedLayout for
        another ACID version than 2.
        """
        prefix = len(path) + 1
        files: list[FileEntry] = []
        directories: list[str] = []
        formats: dict[str, str] = {}
        versioned: list[str] = []
        directories += only or ()
        roots = [path] if only is None else [f"{path}/{name}" for name in only]
        for info in chain.from_iterable(map(self.below, roots)):
            relative = info.path[prefix:]
            parts = relative.split("/")
            if len(parts) == 2 and parts[1] == names.METADATA_FILE:
                with suppress(FileNotFoundError):
                    formats[parts[0]] = self._data_format(info.path)
            if len(parts) == 2 and parts[1] == names.VERSION_FILE:
                versioned.append(parts[0])
            if any(names.is_hidden(part) for part in parts):
                continue
            if info.type == fs.FileType.File:
                files.append(FileEntry(relative, info.size))
            elif len(parts) == 1:
                directories.append(relative)
        for directory in sorted(versioned):  # one writer made the table: one file is enough
            with suppress(FileNotFoundError):
                self._require_version(f"{path}/{directory}/{names.VERSION_FILE}")
                break
        return EntityListing(
            path, tuple(files), tuple(sorted(directories)), formats, frozenset(versioned)
        )

    def _require_version(self, path: str) -> None:
        """Compares only the first byte, as Hive does. Raises UnsupportedLayout."""
        version = self.read(path)[:1]
        if version != names.VERSION:
            raise UnsupportedLayout(
                f"{path} holds {version.decode(errors='replace')!r} instead of"
                f" {names.VERSION.decode()!r}: ACID version 1 is not supported; run a major"
                " compaction with Hive 2 and upgrade the table, or restore the file"
            )

    def entities(self, paths: list[str]) -> list[EntityListing]:
        """`entity` for each path, in order; several are listed in parallel."""
        return in_threads(self.entity, paths)

    def _data_format(self, path: str) -> str:
        try:
            content = json.loads(self.read(path))
            version, data_format = content["thisFileVersion"], str(content["dataFormat"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFile(
                f"{path} is not a _metadata_acid file of Hive: {error}; restore it"
            ) from error
        if version != "0" or data_format not in ("compacted", "truncated"):
            raise CorruptFile(
                f"{path} has the unknown version {version!r} or format {data_format!r}; restore it"
            )
        return data_format

    def partition_directories(self, path: str, depth: int) -> list[str]:
        """Relative paths `a=1/b=2` of the partition directories below a table root, sorted."""
        directories = [""]
        for _ in range(depth):
            directories = [
                f"{parent}/{info.base_name}".lstrip("/")
                for parent in directories
                for info in self.children(f"{path}/{parent}".rstrip("/"))
                if info.type == fs.FileType.Directory
                and not names.is_hidden(info.base_name)
                and partition_segment(info.base_name)
            ]
        return sorted(directories)

    def temporaries(self, path: str) -> list[str]:
        """Names of `_tmp_…` directories directly below `path`."""
        return sorted(
            i.base_name
            for i in self.children(path)
            if i.base_name.startswith(names.TEMPORARY_PREFIX)
        )

    # --- changing --------------------------------------------------------------------------

    def open(self, path: str) -> pa.NativeFile:
        """The file, for reading. Raises FileNotFoundError, OSError, StoreUnavailable.

        A small one in an object store is read at once: a reader of ORC or Parquet seeks, and there
        each read is a request.
        """
        stream = self._opened(path)
        if not self.object_store or stream.size() > _AT_ONCE:
            return stream
        with stream:
            return pa.BufferReader(stream.read_buffer())

    def read(self, path: str) -> bytes:
        """The bytes of a small file, such as a marker. Raises FileNotFoundError, and CorruptFile
        for what is no file or a large one."""
        if self.local and not stat.S_ISREG(os.stat(path).st_mode):
            raise CorruptFile(f"{path} is no file, and reading it may not end; remove it")
        with asking(path), self._opened(path) as stream:
            content = bytes(stream.read(_LARGEST_MARKER + 1))
        if len(content) > _LARGEST_MARKER:
            raise CorruptFile(
                f"{path} has more than {_LARGEST_MARKER >> 20} MB, as none of its kind has; restore"
                " it"
            )
        return content

    def _opened(self, path: str) -> pa.NativeFile:
        stream = self.system.open_input_file(path)
        if stream.closed:  # Arrow's file in Google's store, which told its size and no more
            raise StoreUnavailable(
                f"{path}: the object store failed when the file was opened; try again later, and"
                " check the network and the credentials if it stays so"
            )
        return stream

    def write(self, path: str, content: bytes) -> None:
        with asking(path), self.system.open_output_stream(path) as stream:
            stream.write(content)

    def make_directory(self, path: str) -> None:
        """A directory for files to come, which an object store does not need.

        Raises WarehouseNotWritable.
        """
        if not self.object_store:
            self.make_lasting_directory(path)

    def make_lasting_directory(self, path: str) -> None:
        """A directory that is there while it is empty; an object store gets an object for it.

        Raises WarehouseNotWritable.
        """
        try:
            with asking(path):
                self.system.create_dir(path, recursive=True)
        except OSError as error:
            raise WarehouseNotWritable(
                f"can't create {path}: {error}; fix its permissions, or choose another"
                " ACID_WAREHOUSE"
            ) from error

    def delete_directory(self, path: str) -> None:
        """Delete a directory and everything in it; does nothing if it is gone."""
        if not self.object_store:
            if self.exists(path):
                self.system.delete_dir(path)
            return
        with asking(path):
            try:
                self.system.delete_dir(path)
            except FileNotFoundError:
                pass
            except OSError:  # some say only in words that it is gone
                if self.exists(path):
                    raise

    def delete_file(self, path: str) -> None:
        """Does nothing if it is gone."""
        with asking(path), suppress(FileNotFoundError):
            self.system.delete_file(path)

    def rename(self, path: str, target: str) -> None:
        """Give another name to a file that nobody reads yet."""
        with asking(path):
            self.system.move(path, target)

    def place(self, path: str, final: str, size: int) -> None:
        """Gives a file of `size` bytes its final name.

        An object store copies it: remove its directory later. One that is too large for that goes
        through this process.
        """
        store = store_of(self.system)
        if store is None:
            self.system.move(path, final)
        elif size <= store.largest_copy:
            self.system.copy_file(path, final)
        else:
            with (
                self.system.open_input_stream(path) as source,
                self.system.open_output_stream(final) as target,
            ):
                shutil.copyfileobj(source, target, _COPIED_BYTES)


@contextmanager
def asking(where: str) -> Iterator[None]:
    """An error of Arrow in the block becomes StoreRefused or StoreUnavailable if the store is to
    blame."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        fault = store_fault(error, where)
        if fault is None:
            raise
        raise fault from error


def in_threads(work: Callable[[_Item], _Result], items: Collection[_Item]) -> list[_Result]:
    """What `work` returns for each item, in order; several wait for the file system at a time."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, items))
