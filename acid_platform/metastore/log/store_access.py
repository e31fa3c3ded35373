"""What a log needs of a store of objects, and the store that an address names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from acid_platform.base.location import local_path
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.log.folder import Folder

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
        """The names that come after this one, sorted."""

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
        path = local_path(url)
        if path is None:
            raise InvalidDefinition(f"{url}: write file:///directory")
        return Folder(Path(path))
    _, _, rest = url.partition("://")
    if not rest.partition("/")[2] or "?" in rest:
        raise InvalidDefinition(f"{url}: write the bucket and a prefix, as in s3://bucket/prefix")
    from acid_platform.metastore.log.bucket import StorePrefix

    return StorePrefix(url, seconds)


def logs_below(url: str) -> list[str]:
    """The names of the prefixes below this one that hold a log, as of the histories in an archive.

    Raises InvalidDefinition, StoreUnavailable, StoreRefused.
    """
    names = objects_at(url.rstrip("/"), 30).names()
    if url.startswith("file:"):
        path = Path(local_path(url) or "")
        names = [f"{name}/{LOG}" for name in names if (path / name / LOG).exists()]
    return [name.partition("/")[0] for name in names if name.count("/") == 1 and LOG in name]
