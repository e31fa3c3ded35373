"""Names of tables: their normal form, and which may be declared, as they become parts of paths."""

from __future__ import annotations

import unicodedata

from acid_platform.base.arguments import require_kind
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.partition_names import LONGEST_NAME
from acid_platform.layout.sql_text import refuse_half_characters


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
            f"{what} {_short(name)} {trouble}, so it can't be part of a path; choose another name"
        )


BACKTICK = "ends a name in SQL, where nothing stands for it inside of one"


def refuse_shared_name(what: str, name: str) -> None:
    """As `refuse_path_trouble`, and for the characters that mean something in `db.table`.

    A dot separates the parts, and a star stands for all names: of tables in locks, in grants and in
    patterns of assets. No statement can name what has a backtick in its name.
    """
    refuse_path_trouble(what, name)
    for character, meaning in _MEANINGS.items():
        if character in name:
            raise InvalidDefinition(
                f"{what} {_short(name)} contains {character!r}, which {meaning}; choose another"
                " name"
            )


_MEANINGS = {
    ".": "separates a database from its tables",
    "*": "stands for all names",
    "`": BACKTICK,
}


def refuse_names(table: str, location: str | None = None) -> None:
    """Checks the name `db.table` of a new table, and its location, before a path is looked at.

    Raises InvalidDefinition.
    """
    database, _, short = table.partition(".")
    refuse_shared_name("the name of a database", database)
    refuse_shared_name("the name of a table", short)
    for part in (location or "").split("/"):
        refuse_half_characters(part, f"{table}: the location", InvalidDefinition)
        if len(part.encode()) > LONGEST_NAME:
            raise InvalidDefinition(
                f"{table}: the location has a name of {len(part.encode())} bytes,"
                f" {_short(part)}, and file systems take {LONGEST_NAME}; choose a shorter one"
            )


def _short(name: str) -> str:
    return repr(name) if len(name) <= 80 else f"{name[:60]!a}… ({len(name)} characters)"


def table_name(name: str) -> str:
    """`db.t` in lower case; a name without a database is in `default`. Raises InvalidDefinition."""
    require_kind("table", name, str, "a name such as 'db.t'", InvalidDefinition)
    lower = name.strip().lower()
    return lower if "." in lower else f"default.{lower}"
