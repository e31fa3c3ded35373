"""What users say by `.option(…)`, `.load("db.t")`, `.save("db.t")` and `.start("db.t")`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from acid_platform.base.arguments import nearest_name
from acid_platform.base.location import Location
from acid_platform.errors import InvalidDefinition
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.names import table_name
from acid_platform.metastore.pasts import NOW, AsOf, past_named

PURPOSES = {
    "path": "any",
    "table": "any",
    "warehouse": "any",
    "metastore": "any",
    "asOf": "read",
    "where": "read",
    "since": "readStream",
    "changes": "readStream",
    "maxCommitsPerTrigger": "readStream",
    "partitionOverwriteMode": "write",
    "sink": "writeStream",
    "replay": "writeStream",
}
"""Our options, and what they are for."""
_UNNAMED = "without a checkpoint: "
"""Keys that begin so may be those of several queries with equal options."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write; texts as the user gave them, None if there were none."""

    place: Location
    table: str
    as_of: AsOf | None = None
    where: str | None = None
    since: str | None = None
    changes: bool = False
    most_commits: int | None = None
    dynamic: bool = False
    """INSERT OVERWRITE replaces only the partitions that occur in the rows."""
    sink: str | None = None
    skip_replayed: bool = False
    checkpoint: str | None = None
    """What the option checkpointLocation says."""
    fingerprint: str = ""
    """A hash of all options, which tells a query without a checkpoint from most others."""

    @classmethod
    def of(cls, by_name: Mapping[str, str], use: str) -> Options:
        """`use`: `read`, `write`, `readStream`, `writeStream` or `any`.

        Raises InvalidDefinition for a missing table, an option of another use, a name that looks
        misspelt, and a value that is not possible. Spark's own options pass.
        """
        texts = {name.lower(): value for name, value in by_name.items()}
        _check_names(texts, use)
        table = texts.get("path") or texts.get("table")
        if not table:
            raise InvalidDefinition('no table is named: call load("db.t"), save("db.t") or start')
        as_of = texts.get("asof")
        return cls(
            Location.of(texts.get("warehouse"), texts.get("metastore")),
            table_name(table),
            None if as_of is None else AsOf.of(past_named(as_of)),
            texts.get("where"),
            texts.get("since"),
            _choice(texts, "changes", "false", "true") == "true",
            _count(texts, "maxCommitsPerTrigger"),
            _choice(texts, "partitionOverwriteMode", "static", "dynamic") == "dynamic",
            texts.get("sink"),
            _choice(texts, "replay", "check", "skip") == "skip",
            texts.get("checkpointlocation"),
            hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest(),
        )

    @property
    def key(self) -> str:
        """Under which the open write of a streaming query is kept."""
        return self.checkpoint or f"{_UNNAMED}{self.fingerprint}"

    @property
    def of_stream(self) -> bool:
        """Whether only a stream has such options."""
        return self.changes or self.since is not None or self.most_commits is not None

    @property
    def start(self) -> AsOf | None:
        """The snapshot after which a stream begins; None: all rows of its first one."""
        return None if self.since in (None, NOW) else AsOf.of(past_named(self.since or ""))

    @property
    def starts_now(self) -> bool:
        return self.since == NOW


def shared_key(key: str) -> bool:
    """Whether several queries may have it."""
    return key.startswith(_UNNAMED)


def _check_names(texts: Mapping[str, str], use: str) -> None:
    spellings = {name.lower(): name for name in PURPOSES}
    for name in texts:
        if name in spellings:
            spelled = spellings[name]
            if "any" not in (use, PURPOSES[spelled]) and use != PURPOSES[spelled]:
                raise InvalidDefinition(
                    f"the option {spelled} is for {PURPOSES[spelled]}, and this is a {use}:"
                    " leave it out"
                )
        elif near := nearest_name(name, spellings, 0.8):
            raise InvalidDefinition(f"there is no option {name!r}; did you mean {spellings[near]}?")


def _choice(texts: Mapping[str, str], name: str, otherwise: str, other: str) -> str:
    value = texts.get(name.lower(), otherwise).lower()
    if value not in (otherwise, other):
        raise InvalidDefinition(f"{name}={value!r}: set it to {otherwise} or {other}")
    return value


def _count(texts: Mapping[str, str], name: str) -> int | None:
    value = texts.get(name.lower())
    if value is None:
        return None
    if not value.isdigit() or not int(value):
        raise InvalidDefinition(f"{name}={value!r}: set it to a number from 1 on")
    return int(value)


@cache
def opened(location: Location) -> Warehouse:
    """The handle of this process. Raises as Warehouse.open."""
    return Warehouse.open(location.warehouse, metastore=location.metastore)
