"""Which names may be declared, given that they become parts of paths (P31)."""

from __future__ import annotations

import unicodedata

from acid_platform.errors import InvalidDefinition


def refuse_path_trouble(what: str, name: str) -> None:
    """Raises InvalidDefinition if the name can't be part of a path; `what` says whose name it is.

    That holds for `/`, `.`, `..`, control characters, leading or trailing blanks, and names longer
    than a file system allows.
    """
    trouble = ""
    if name != name.strip() or name in ("", ".", ".."):
        trouble = "is empty or a dot, or begins or ends with a blank"
    elif "/" in name or "\\" in name:
        trouble = "contains a path separator"
    elif any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        trouble = "contains a control character"
    elif len(name.encode()) > 240:
        trouble = "is longer than 240 bytes"
    if trouble:
        raise InvalidDefinition(
            f"{what} {name!r} {trouble}, so it can't be part of a path; choose another name"
        )
