"""Objects in a local directory, for archives. obstore's own does not sync what it writes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from acid_platform.base.disk import make_directory, sync_path

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
            if isinstance(content, Path):
                shutil.copyfile(content, draft)
            else:
                draft.write_bytes(content)
            os.chmod(draft, 0o600)
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
