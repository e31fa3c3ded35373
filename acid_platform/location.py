"""Where a warehouse and its metastore are: from an argument, else the environment (P10)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from acid_platform.errors import InvalidDefinition

METASTORE_DIRECTORY = "_metastore"
"""The metastore's directory in a local warehouse; the underscore hides it from readers."""


@dataclass(frozen=True, slots=True)
class Location:
    """`warehouse` is an absolute path or a URI; `metastore` is the metastore's directory, or
    `tcp://host:port` if it runs as a service."""

    warehouse: str
    metastore: str

    @property
    def shared(self) -> bool:
        """Whether the metastore is a service, which is started elsewhere."""
        return self.metastore.startswith("tcp://")

    @property
    def made(self) -> bool:
        """Whether the metastore exists; a service is assumed to exist."""
        return self.shared or Path(self.metastore, "metastore.duckdb").exists()

    @classmethod
    def of(
        cls, warehouse: str | os.PathLike[str] | None = None, metastore: str | None = None
    ) -> Location:
        """Defaults are ACID_WAREHOUSE and ACID_METASTORE; a local warehouse holds its metastore.

        Raises InvalidDefinition if no warehouse is named, or a remote one has no ACID_METASTORE.
        """
        where = os.fspath(warehouse) if warehouse is not None else os.environ.get("ACID_WAREHOUSE")
        if not where:
            raise InvalidDefinition(
                "no warehouse is named: pass its path, set ACID_WAREHOUSE, or call `acid` in a"
                " project's directory, where it takes var/warehouse"
            )
        local = "://" not in where or where.startswith("file:")
        if local:
            where = str(Path(where.removeprefix("file://")).expanduser().absolute())
        else:
            where = where.rstrip("/")
        home = metastore or os.environ.get("ACID_METASTORE")
        if home:
            return cls(where, home)
        if not local:
            raise InvalidDefinition(
                f"{where} is not a local directory: set ACID_METASTORE to a local one for its"
                " metastore, or to tcp://host:port (P10)"
            )
        return cls(where, f"{where}/{METASTORE_DIRECTORY}")
