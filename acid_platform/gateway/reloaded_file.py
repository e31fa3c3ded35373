"""A file of rules that is read again when it has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from acid_platform.errors import InvalidDefinition

_Stamp = tuple[int, int, int]
Content = TypeVar("Content")


class ReloadedFile(Generic[Content]):
    """The parsed content of a file. It may be used from several threads."""

    def __init__(self, path: str, parse: Callable[[str, str], Content], what: str) -> None:
        """`parse` gets the text and the path, and raises InvalidDefinition. `what` names the file
        in errors."""
        self._path, self._parse, self._what = path, parse, what
        self._guard = threading.Lock()
        self._stamp: _Stamp | None = None
        self._content: Content | InvalidDefinition | None = None

    def content(self) -> Content:
        """Raises InvalidDefinition as long as the file is missing or wrong."""
        with self._guard:
            try:
                info = Path(self._path).stat()
                stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
                if stamp != self._stamp or self._content is None:
                    self._content = self._parse(Path(self._path).read_text("utf-8"), self._path)
                    self._stamp = stamp
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidDefinition(
                    f"{self._what} {self._path} can't be read: {error}"
                ) from error
            except InvalidDefinition as error:
                self._content, self._stamp = error, stamp
            if isinstance(self._content, InvalidDefinition):
                raise InvalidDefinition(str(self._content))
            return self._content
