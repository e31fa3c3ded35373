"""Where a warehouse and its metastore are: from an argument, else the environment (P10, P70)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from acid_platform.base.object_store import BY_SCHEME
from acid_platform.base.paths import user_path, without_credentials
from acid_platform.errors import InvalidDefinition, MetastoreUnavailable

METASTORE_DIRECTORY = "_metastore"
"""The metastore's directory in a local warehouse; the underscore hides it from readers."""
_LOG_FILES = ("journal-*.log", "snapshot-*.duckdb")

REMOTE = (*BY_SCHEME, "hdfs", "viewfs")
"""The schemes of warehouses and tables that are not on a local disk."""
SERVICE = "tcp"
LOGS = ("postgresql", *BY_SCHEME)
"""The schemes of logs that several metastore processes share."""
_SCHEME = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]+):(?=/|(?<=s3:)|(?<=file:)|(?<=tcp:))", re.IGNORECASE
)


def is_path(text: str) -> bool:
    """Whether it is a local path, also as `file:///path`, and not an address."""
    return text[:5].lower() == "file:" or not ("://" in text or _SCHEME.match(text))


def _place(text: str, name: str, schemes: tuple[str, ...]) -> tuple[str, bool]:
    """The place that a setting names, and whether it is a local path, which gets absolute and
    real (P70): tables are looked for by the names of directories.

    Raises InvalidDefinition for a scheme that is not one of `schemes`, and for a user or password.
    """
    if is_path(text):
        return os.path.realpath(user_path(text)), True
    scheme, _, rest = text.partition("://")
    shown = without_credentials(text)
    if scheme not in schemes or not rest.strip("/"):
        beginnings = ", ".join(f"{scheme}://" for scheme in schemes)
        raise InvalidDefinition(
            f"{name}={shown!r} is refused: it is neither a local path (also file:///path) nor"
            f" begins with {beginnings}; a local directory of that name is ./NAME"
        )
    user = rest.partition("@")[0] if "@" in rest else ""
    # A container may stand there; PostgreSQL knows its users by name.
    named = scheme == "postgresql" or (scheme in BY_SCHEME and BY_SCHEME[scheme].accounts)
    if user and not (named and ":" not in user):
        raise InvalidDefinition(
            f"{name}={shown!r} is refused: an address holds no password, and no user but for"
            " PostgreSQL; keys come from other settings, see docs/grow.md"
        )
    return text.rstrip("/"), False


def metastore_place(text: str) -> str:
    """The metastore's directory, `tcp://host:port`, or the address of a shared log.

    Raises InvalidDefinition.
    """
    return _place(text, "ACID_METASTORE", (SERVICE, *LOGS))[0]


def holds_log(directory: Path) -> bool:
    """Whether the directory has a metastore's log. Raises MetastoreUnavailable if it can't be
    read, such as by another user than its owner."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise MetastoreUnavailable(
            f"{directory} can't be read: {error.strerror}; only the user who made a metastore may"
            " read it: run as that one, or connect to it by tcp://, see docs/grow.md"
        ) from error
    return any(fnmatch(name, log) for name in names for log in _LOG_FILES)


@dataclass(frozen=True, slots=True)
class Location:
    """`warehouse` is an absolute path or a URI; `metastore` is the metastore's directory,
    `tcp://host:port` if it runs as a service, or the address of a log that services share."""

    warehouse: str
    metastore: str

    @property
    def shared(self) -> bool:
        """Whether the metastore is a service, which is started elsewhere."""
        return "://" in self.metastore

    @property
    def made(self) -> bool:
        """Whether the metastore exists; a service is assumed to exist."""
        return self.shared or holds_log(Path(self.metastore))

    @classmethod
    def of(
        cls, warehouse: str | os.PathLike[str] | None = None, metastore: str | None = None
    ) -> Location:
        """Defaults are ACID_WAREHOUSE and ACID_METASTORE; a local warehouse holds its metastore.

        A local path gets absolute and real (P70).

        Raises InvalidDefinition if no warehouse is named, a remote one has no ACID_METASTORE (P10),
        or one of the two has a scheme that is not known, or a password.
        """
        where = os.fspath(warehouse) if warehouse is not None else os.environ.get("ACID_WAREHOUSE")
        if not where:
            raise InvalidDefinition(
                "no warehouse is named: pass its path, set ACID_WAREHOUSE, or call `acid` in a"
                " project's directory, where it takes var/warehouse"
            )
        where, local = _place(where, "ACID_WAREHOUSE", REMOTE)
        home = metastore or os.environ.get("ACID_METASTORE")
        if home:
            return cls(where, metastore_place(home))
        if not local:
            raise InvalidDefinition(
                f"{where} is not a local directory: set ACID_METASTORE to a local one for its"
                " metastore, to tcp://host:port, or to postgresql://… or s3://…"
            )
        return cls(where, f"{where}/{METASTORE_DIRECTORY}")
