"""Files of a bucket through obstore, as a file system of Arrow (P41).

Azure's own in Arrow ends the process where an identity gives no more tokens and where a request of
a removal fails, and waits without a limit for a silent server.

Errors are OSErrors with obstore's text, of which the store's `arrow_fault` tells the meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import from_url
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType, PyFileSystem

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_AT_ONCE = 8 << 20
"""A file up to this size is fetched by one request."""
_PART = 10 << 20
_MARK = "hdi_isfolder"
"""The metadata of an object that is a directory."""


@contextmanager
def _asked(path: str) -> Iterator[None]:
    """Raises FileNotFoundError and OSError instead of obstore's errors."""
    try:
        yield
    except (exceptions.BaseError, FileNotFoundError) as error:
        text = " ".join(str(error).partition("\n\nDebug source")[0].split())
        if isinstance(error, FileNotFoundError) and "ContainerNotFound" not in text:
            raise FileNotFoundError(f"{path} is not there: {text}") from error
        raise OSError(text) from error


class _Ranges:
    """A large object, read by one request for each range. Read only."""

    closed = False

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store, self._key, self._size, self._at = store, key, size, 0

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if count is None or count < 0 else min(count, left)
        if not count:
            return b""
        with _asked(self._key):
            data = obstore.get_range(self._store, self._key, start=self._at, length=count)
        self._at += count
        return bytes(data)

    def close(self) -> None:
        self.closed = True


class _Upload:
    """An object that is put when it is closed, or in parts if it is large."""

    def __init__(self, store: ObjectStore, key: str, attributes: Any) -> None:
        self._key, self.closed = key, False
        self._writer = obstore.open_writer(
            store, key, attributes=attributes, buffer_size=_PART, max_concurrency=4
        )

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        with _asked(self._key):
            return int(self._writer.write(bytes(data)))

    def flush(self) -> None:
        """Nobody sees an object before it is whole."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _asked(self._key):
                self._writer.close()


class ObjectFiles(FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """Paths are `bucket/key`.

    A directory is there as long as it has files, or an object of its own: an empty one that is
    marked as Hadoop's connector and an account with a hierarchical namespace mark theirs.
    """

    def __init__(self, name: str, bucket: str, store: ObjectStore) -> None:
        self._name, self._bucket, self._store = name, bucket, store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFiles) and self._store is other._store

    def __hash__(self) -> int:
        return id(self._store)

    def _key(self, path: str) -> str:
        return path.removeprefix(self._bucket).strip("/")

    def get_type_name(self) -> str:
        return self._name

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        key = self._key(path)
        if key and (named := self._named(path)):
            return named
        with _asked(path):
            for page in obstore.list(self._store, key or None, chunk_size=1):
                if page or not key:
                    return FileInfo(path, FileType.Directory)
        return FileInfo(path, FileType.Directory if not key else FileType.NotFound)

    def _named(self, path: str) -> FileInfo | None:
        """The object of this name."""
        try:
            with _asked(path):
                found = obstore.get(self._store, self._key(path), options={"head": True})
                if _MARK in found.attributes:
                    return FileInfo(path, FileType.Directory)
                return _file(path, found.meta)
        except FileNotFoundError:
            return None

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        base = selector.base_dir.rstrip("/")
        found: dict[str, FileInfo] = {}
        for key, meta in self._below(base):
            path = f"{self._bucket}/{key}"
            found[path] = _file(path, meta) if meta["size"] else self._info(path)
            above = path.rpartition("/")[0]
            while len(above) > len(base) and above not in found:
                found[above] = FileInfo(above, FileType.Directory)
                above = above.rpartition("/")[0]
        if not found and not selector.allow_not_found:
            raise FileNotFoundError(base)
        start = len(base) + 1
        return [
            entry for path, entry in found.items() if selector.recursive or "/" not in path[start:]
        ]

    def _below(self, path: str) -> list[tuple[str, Any]]:
        key = self._key(path)
        with _asked(path):
            pages = obstore.list(self._store, key or None)
            return [
                (entry["path"], entry) for page in pages for entry in page if entry["path"] != key
            ]

    def create_dir(self, path: str, _recursive: bool) -> None:
        with _asked(path), suppress(exceptions.AlreadyExistsError):
            marked: Any = {_MARK: "true"}
            obstore.put(self._store, self._key(path), b"", attributes=marked, mode="create")

    def delete_dir(self, path: str) -> None:
        """Also the directories that are left empty, deepest first: a hierarchical namespace lists
        none, and refuses to remove one that is not empty."""
        keys = self._deleted_below(path)
        if (named := self._named(path)) is None or named.is_file:
            return
        top = self._key(path)
        above = {top}
        for key in keys:
            parts = key.removeprefix(f"{top}/").split("/")[:-1]
            above |= {"/".join((top, *parts[:end])) for end in range(1, len(parts) + 1)}
        for directory in sorted(above, reverse=True):
            with suppress(FileNotFoundError):
                self.delete_file(f"{self._bucket}/{directory}")

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        if not self._deleted_below(path) and not missing_dir_ok:
            raise FileNotFoundError(path)

    def _deleted_below(self, path: str) -> list[str]:
        keys = [key for key, _ in self._below(path)]
        with _asked(path):
            obstore.delete(self._store, keys)
        return keys

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError("a whole bucket is not emptied")

    def delete_file(self, path: str) -> None:
        with _asked(path):
            obstore.delete(self._store, self._key(path))

    def move(self, src: str, dest: str) -> None:
        self.copy_file(src, dest)
        self.delete_file(src)

    def copy_file(self, src: str, dest: str) -> None:
        with _asked(src):
            obstore.copy(self._store, self._key(src), self._key(dest))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        key = self._key(path)
        with _asked(path):
            result = obstore.get(self._store, key)
            size = result.meta["size"]
            if size <= _AT_ONCE:
                return pa.BufferReader(bytes(result.bytes()))
        return pa.PythonFile(_Ranges(self._store, key, size), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        given = {
            key.decode() if isinstance(key, bytes) else key: (
                value.decode() if isinstance(value, bytes) else value
            )
            for key, value in dict(metadata or {}).items()
        }
        return pa.PythonFile(_Upload(self._store, self._key(path), given or None), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError("an object does not grow")


def files_at(name: str, bucket: str, uri: str, options: dict[str, Any]) -> FileSystem:
    """The file system of a bucket, for which it asks once. Raises OSError, also if there is none.

    `name`: of its kind; Arrow calls it `py::name`. `options`: of obstore.
    """
    with _asked(uri):
        system = PyFileSystem(ObjectFiles(name, bucket, from_url(uri, **options)))
    system.get_file_info(bucket)
    return system


def _file(path: str, meta: Any) -> FileInfo:
    return FileInfo(path, FileType.File, size=meta["size"], mtime=meta["last_modified"])
