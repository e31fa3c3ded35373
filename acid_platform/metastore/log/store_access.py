"""What a log needs of a store of objects, and the store that an address names.

Objects may lie in a local directory, for archives: obstore's own does not sync what it writes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from acid_platform.base.local_files import create_private, make_directory, sync_path
from acid_platform.base.object_store import BY_SCHEME
from acid_platform.base.paths import local_path
from acid_platform.errors import InvalidDefinition

_DRAFT = ".draft-"
"""Begins the name of a file that is being written; listings don't show it."""


class Folder:
    """The files of a directory, which is made when the first one is written.

    Methods raise OSError, as for a full disk; then nothing was written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.place = f"file://{directory.resolve()}"

    def create(self, name: str, data: bytes) -> None:
        with self._written(data) as draft:
            os.link(draft, self._directory / name)

    def replace(self, name: str, data: bytes, version: object) -> None:
        with self._written(data) as draft, self._locked():
            if (self._directory / name).read_bytes() != version:
                raise FileExistsError(name)
            os.rename(draft, self._directory / name)

    def get(self, name: str) -> tuple[bytes, object]:
        data = (self._directory / name).read_bytes()
        return data, data

    def names(self, after: str = "") -> list[str]:
        if not self._directory.exists():
            return []
        names = os.listdir(self._directory)
        return sorted(name for name in names if name > after and not name.startswith("."))

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            (self._directory / name).unlink(missing_ok=True)
        if names:
            sync_path(self._directory)

    def upload(self, name: str, file: Path) -> None:
        with self._written(file) as draft:
            os.rename(draft, self._directory / name)

    def download(self, name: str, file: Path) -> None:
        shutil.copyfile(self._directory / name, file)

    def check(self, name: str) -> bool:
        """A link fails if its name exists, on every file system that has links."""
        return (self._directory / name).exists()

    @contextmanager
    def _written(self, content: bytes | Path) -> Iterator[Path]:
        """A synced file for a name of the directory, which is synced when the block ends."""
        make_directory(self._directory, 0o700)
        draft = self._directory / f"{_DRAFT}{token_hex(8)}"
        try:
            with create_private(draft) as file:
                if isinstance(content, Path):
                    with open(content, "rb") as source:
                        shutil.copyfileobj(source, file)
                else:
                    file.write(content)
            sync_path(draft)
            yield draft
        finally:
            draft.unlink(missing_ok=True)
            sync_path(self._directory)  # also if the name exists: maybe it was never synced

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Excludes other processes and threads that replace an object."""
        file = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


LOG = "log.json"
"""The object that every log has."""


class Objects(Protocol):
    """Named objects. Any thread may use them.

    All methods raise StoreUnavailable if the outcome is unknown, and StoreRefused.
    """

    place: str

    def create(self, name: str, data: bytes) -> None:
        """Raises FileExistsError if there is such an object."""

    def replace(self, name: str, data: bytes, version: object) -> None:
        """Raises FileExistsError if the object is no longer the one that had this version."""

    def get(self, name: str) -> tuple[bytes, object]:
        """The content, and a version for `replace`. Raises FileNotFoundError."""

    def names(self, after: str = "") -> list[str]:
        """The names of objects in their order, beginning after the name `after`."""

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects in this order or all at once; some may be gone."""

    def upload(self, name: str, file: Path) -> None:
        """Puts a file of any size. Nobody sees a part of it."""

    def download(self, name: str, file: Path) -> None:
        """Writes the object to a file. Raises FileNotFoundError."""

    def check(self, name: str) -> bool:
        """Whether the store honours conditions, tried on this object, which exists."""


def objects_at(url: str, seconds: float) -> Objects:
    """The objects below a prefix. `seconds`: how long a request may take.

    Raises InvalidDefinition, and ModuleNotFoundError if obstore is missing.
    """
    if url.startswith("file:"):
        return Folder(Path(local_path(url)))
    scheme, _, rest = url.partition("://")
    if scheme not in BY_SCHEME or not rest.partition("/")[2] or "?" in rest:
        raise InvalidDefinition(
            f"{url}: write the bucket and a prefix, as in s3://bucket/prefix; other stores begin"
            f" with {', '.join(f'{scheme}://' for scheme in BY_SCHEME)}"
        )
    from acid_platform.metastore.log.bucket import StorePrefix

    return StorePrefix(url, seconds)


def logs_below(url: str) -> list[str]:
    """The names of the prefixes below this one that hold a log, as of the histories in an archive.

    Raises InvalidDefinition, StoreUnavailable, StoreRefused.
    """
    names = objects_at(url.rstrip("/"), 30).names()
    if url.startswith("file:"):
        path = Path(local_path(url))
        names = [f"{name}/{LOG}" for name in names if (path / name / LOG).exists()]
    return [name.partition("/")[0] for name in names if name.count("/") == 1 and LOG in name]
