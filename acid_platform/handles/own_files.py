"""Which files a source may name: those below its own place (P67).

A source is a stranger's. By a path in it that leads elsewhere, or a link, other files of whoever
imports it would become rows of a table that more people read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from acid_platform.base.paths import is_uri, local_path
from acid_platform.errors import ImportRefused

_SAME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "gcs": "gs"}
"""Schemes by which the same store is reached."""

_DIRECTORY = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
"""Opens a directory, on Linux also one whose names may not be listed."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files below some places, each a path or a URI."""

    source: str
    places: tuple[str, ...]

    def require(self, file: str) -> None:
        """Raises ImportRefused for a file elsewhere."""
        found = _resolved(file)
        roots = [_resolved(place).rstrip("/") for place in self.places]
        if ".." in found.split("/") or not any(found.startswith(f"{root}/") for root in roots):
            raise ImportRefused(
                f"{self.source} names {file}, which is not below {' or '.join(self.places)}: a"
                " source may not have other files of yours imported; if they belong to it, allow"
                " their place by --files-in PLACE (files_in=[…]). Nothing was imported"
            )

    @contextmanager
    def opened(self, file: str) -> Iterator[str]:
        """A path of the open file, one of the local file system, which leads to it whatever others
        do with its name meanwhile. Raises ImportRefused for a file elsewhere, OSError."""
        self.require(file)
        parts = os.path.realpath(file).strip("/").split("/")
        held = os.open("/", _DIRECTORY)
        try:
            for number, part in enumerate(parts, 1):
                # A link is an error here: it was made after `realpath` had followed all of them.
                flags = os.O_RDONLY if number == len(parts) else _DIRECTORY
                inner = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
                os.close(held)
                held = inner
            yield f"/dev/fd/{held}"
        finally:
            os.close(held)

    def require_all(self, files: Iterable[str]) -> None:
        for file in files:
            self.require(file)


def _resolved(place: str) -> str:
    """A local path without links and `..`, or a URI."""
    if not is_uri(place):
        return os.path.realpath(local_path(place))
    scheme, _, rest = place.partition("://")
    return f"{_SAME.get(scheme.lower(), scheme.lower())}://{rest}"
