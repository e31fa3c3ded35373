"""The log that an address names: in an object store, or in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.base.object_store import BY_SCHEME
from acid_platform.base.paths import without_credentials
from acid_platform.errors import InvalidDefinition

if TYPE_CHECKING:
    from acid_platform.metastore.log.contract import SharedLog

_POSTGRES = ("postgresql", "postgres")


def open_log(where: str, patience: float = 10) -> SharedLog:
    """The log at an address; nothing is asked yet, but the region of a bucket.

    `patience`: for how many seconds failing requests are tried again. Raises InvalidDefinition, as
    for an address of another kind, and if a needed package is missing.
    """
    scheme = where.partition("://")[0]
    if scheme in _POSTGRES:
        try:
            from acid_platform.metastore.log.postgres import PostgresLog
        except ModuleNotFoundError as error:
            raise _missing(error, where, "psycopg", "postgres") from error
        return PostgresLog(where, patience)
    if scheme in BY_SCHEME or where.startswith("file:"):
        from acid_platform.metastore.log.objects import ObjectLog

        try:
            return ObjectLog(where, patience)
        except ModuleNotFoundError as error:
            raise _missing(error, where, "obstore", "bucket") from error
    schemes = ", ".join(f"{one}://" for one in ("postgresql", *BY_SCHEME, "file"))
    raise InvalidDefinition(
        f"{without_credentials(where)} is no place of a log: it begins with none of {schemes}"
    )


def _missing(error: ModuleNotFoundError, where: str, package: str, extra: str) -> Exception:
    if error.name != package:
        return error
    return InvalidDefinition(
        f"{without_credentials(where)} needs {package}: pip install acid-platform[{extra}]"
    )
