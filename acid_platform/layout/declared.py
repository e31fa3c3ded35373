"""Names that become parts of paths: what may be declared (P31)."""

from __future__ import annotations

import unicodedata

from acid_platform.errors import InvalidDefinition


def refuse_path_trouble(what: str, name: str) -> None:
    """`what` says whose name it is. Raises InvalidDefinition for `/`, `.`, `..`, control
    characters, blanks at an end, and more bytes than a file system takes."""
    trouble = ""
    if name != name.strip() or name in ("", ".", ".."):
        trouble = "is empty, a dot, or begins or ends with a blank"
    elif "/" in name or "\\" in name:
        trouble = "holds a separator of paths"
    elif any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in name):
        trouble = "holds a control character"
    elif len(name.encode()) > 240:
        trouble = "has more than 240 bytes"
    if trouble:
        raise InvalidDefinition(
            f"{what} {name!r} {trouble}, and can't be part of a path; take another name"
        )
