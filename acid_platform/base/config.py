"""Every setting that the platform knows (P9).

HONOURED settings change what happens. REFUSED settings would change an answer or what a statement
does, or promise a protection that nobody here gives, and accept only the value that the platform
works with; each says why. Any other setting of Hive changes nothing here. Times are kept in
milliseconds; a number without a unit is in the setting's own unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from acid_platform.errors import SettingRefused

pass


class SettingKind(Enum):
    BOOL = "true or false"
    INT = "a whole number"
    FLOAT = "a number"
    TIME = "a time (ms, s, min, h, d)"
    TEXT = "a text"
    REGEX = "comma separated regular expressions"


class Treatment(Enum):
    HONOURED = "honoured"
    REFUSED = "refused"


Value = bool | int | float | str

_UNITS = {
    "ms": 1,
    "msec": 1,
    "s": 1000,
    "sec": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([a-z]*)")
_BOOLS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: Hive's name, default (as text), allowed range and how it is treated.

    `low` and `high` are in the unit of the default for times. `reason` is set unless HONOURED.
    """

    name: str
    kind: SettingKind
    default: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    reason: str = ""
    treatment: Treatment = Treatment.HONOURED

    @property
    def bounded(self) -> bool:
        """Whether it is one of a few values or a number: another one names places, code, patterns
        or jobs."""
        return self.kind not in (SettingKind.TEXT, SettingKind.REGEX) or bool(self.choices)

    @property
    def unit(self) -> str:
        """That of the default; a number without a unit has it too. Empty unless it is a time."""
        return self.default.lstrip("-.0123456789") if self.kind is SettingKind.TIME else ""

    @property
    def allowed(self) -> str:
        """The allowed range, for messages and docs."""
        if self.treatment is Treatment.REFUSED:
            return f"only {self.default!r}: {self.reason}"
        if self.choices:
            return "one of " + ", ".join(map(repr, self.choices))
        if self.low is None and self.high is None:
            return self.kind.value
        least = "" if self.low is None else f" from {self.low:g}"
        most = "" if self.high is None else f" to {self.high:g}"
        return f"{self.kind.value}{least}{most} {self.unit}".rstrip()

    def parse(self, text: str) -> Value:
        """The typed value; times in milliseconds. Raises SettingRefused with the allowed range."""
        try:
            value = self._typed(text.strip())
        except (ValueError, KeyError, re.error) as error:
            raise self._refused(text) from error
        if not self._allows(value):
            raise self._refused(text)
        return value

    def _typed(self, text: str) -> Value:
        match self.kind:
            case SettingKind.BOOL:
                return _BOOLS[text.lower()]
            case SettingKind.INT:
                return int(text)
            case SettingKind.FLOAT:
                number = float(text)
                if not math.isfinite(number):
                    raise ValueError(text)
                return number
            case SettingKind.TIME:
                match = _NUMBER.fullmatch(text.lower())
                if not match:
                    raise ValueError(text)
                return round(float(match[1]) * _UNITS[match[2] or self.unit])
            case SettingKind.REGEX:
                re.compile("|".join(_patterns(text)))
        return text

    def _allows(self, value: Value) -> bool:
        if self.treatment is Treatment.REFUSED:
            return str(value).lower() == str(self._typed(self.default)).lower()
        if self.choices:
            return value in self.choices
        if isinstance(value, str | bool):
            return True
        scale = _UNITS[self.unit] if self.unit else 1
        return (self.low is None or value >= self.low * scale) and (
            self.high is None or value <= self.high * scale
        )

    def _refused(self, text: str) -> SettingRefused:
        return SettingRefused(f"{self.name}={text!r} is refused; allowed is {self.allowed}")


def _patterns(text: str) -> list[str]:
    return [part for part in (piece.strip() for piece in text.split(",")) if part]


_B, _N, _F, _T, _X = (
    SettingKind.BOOL,
    SettingKind.INT,
    SettingKind.FLOAT,
    SettingKind.TIME,
    SettingKind.TEXT,
)
_HIVE = "org.apache.hadoop.hive"
_DB_TXN_MANAGER = f"{_HIVE}.ql.lockmgr.DbTxnManager"

HONOURED: tuple[Setting, ...] = (
    Setting("hive.txn.manager", _X, _DB_TXN_MANAGER, choices=(_DB_TXN_MANAGER,)),
    Setting("hive.txn.timeout", _T, "300s", 1, 604_800),
    Setting("hive.txn.heartbeat.threadpool.size", _N, "5", low=1, high=64),
    Setting("hive.timedout.txn.reaper.start", _T, "100s", 0, 86_400),
    Setting("hive.timedout.txn.reaper.interval", _T, "180s", 0.1, 86_400),
    Setting("hive.txn.max.open.batch", _N, "1000", low=1, high=100_000),
    Setting("hive.max.open.txns", _N, "100000", low=1),
    Setting("hive.count.open.txns.interval", _T, "1s", 0, 3600),
    Setting("hive.txn.retryable.sqlex.regex", SettingKind.REGEX, ""),
    Setting("hive.compactor.initiator.on", _B, "true"),
    Setting("hive.compactor.worker.threads", _N, "1", low=0, high=64),
    Setting("hive.compactor.worker.timeout", _T, "86400s", 0.1),
    Setting("hive.compactor.cleaner.run.interval", _T, "5000ms", 100),
    Setting("hive.compactor.check.interval", _T, "300s", 0.1),
    Setting("hive.txn.max.retrysnapshot.count", _N, "5", low=1, high=100),
    Setting("hive.compactor.delta.num.threshold", _N, "10", low=0),
    Setting("hive.compactor.delta.pct.threshold", _F, "0.1", low=0),
    Setting("hive.compactor.abortedtxn.threshold", _N, "1000", low=0),
    Setting("hive.compactor.max.num.delta", _N, "500", low=2),
    Setting("hive.compactor.job.queue", _X, ""),
    Setting("hive.txn.xlock.iow", _B, "true"),
    Setting("hive.txn.xlock.write", _B, "false"),
    Setting("hive.txn.xlock.mergeinsert", _B, "false"),
    Setting("hive.writeset.reaper.interval", _T, "60s", 0.1),
    Setting("hive.compactor.cleaner.on", _B, "true"),
    Setting("hive.compactor.worker.sleep.time", _T, "10800ms", 1),
    Setting("hive.compactor.worker.max.sleep.time", _T, "320000ms", 1),
    Setting("hive.compactor.aborted.txn.time.threshold", _T, "12h"),
    Setting("hive.compactor.clean.aborts.using.cleaner", _B, "true"),
    Setting("hive.compactor.delayed.cleanup.enabled", _B, "false"),
    Setting("hive.compactor.cleaner.retention.time.seconds", _T, "300s", 0),
    Setting("hive.compactor.cleaner.retry.maxattempts", _N, "5", low=0, high=10),
    Setting("hive.compactor.cleaner.retry.retention.time", _T, "300s", 0),
    Setting("hive.compactor.fetch.size", _N, "1000", low=100, high=5000),
    Setting("hive.compactor.initiator.failed.compacts.threshold", _N, "2", low=1, high=20),
    Setting("hive.compactor.initiator.failed.retry.time", _T, "7d"),
    Setting("hive.compactor.history.retention.succeeded", _N, "3", low=0, high=100),
    Setting("hive.compactor.history.retention.failed", _N, "3", low=0, high=100),
    Setting("hive.compactor.history.retention.refused", _N, "3", low=0, high=100),
    Setting("hive.compactor.history.retention.did.not.initiate", _N, "2", low=0, high=100),
    Setting("hive.compactor.history.retention.timeout", _T, "7d", 0),
    Setting("hive.compactor.history.reaper.interval", _T, "2min", 0.001),
    Setting("hive.compactor.wait.timeout", _T, "300000ms", 2001),
    Setting("hive.transactional.concatenate.noblock", _B, "false"),
    Setting("hive.compactor.compact.insert.only", _B, "true"),
    Setting("acid.heartbeat.interval", _T, "0ms", 0),
    Setting("acid.read.lease.max", _T, "1h", 0.0001, 720),
    Setting("acid.local.max.bytes", _N, str(256 << 20), low=0),
    Setting("acid.delete.keys.max", _N, "8000000", low=0),
    Setting("acid.local.compaction.max.bytes", _N, str(64 << 20), low=0),
    Setting("acid.outcome.retention", _T, "24h", 24, 8760),
    Setting("acid.metastore.idle.exit", _T, "600s", 0),
    Setting("acid.metastore.snapshot.bytes", _N, str(8 << 20), low=1),
    Setting("acid.metastore.lease", _T, "2500ms", 500, 60_000),
    Setting("acid.metastore.archive", _X, ""),
    Setting("acid.metastore.archive.interval", _T, "60s", 0.1, 86_400),
    Setting("acid.metastore.archive.snapshot.interval", _T, "24h", 0.001, 720),
    Setting("acid.metastore.archive.retention", _T, "30d", 0, 3650),
    Setting("acid.history.retention", _T, "0s", 0, 315_360_000),
    Setting("acid.consumer.retention", _T, "7d", 0, 315_360_000),
    Setting("acid.compaction.publication.wait", _T, "30s", 0, 3600),
    Setting("acid.cleaner.watermark", _X, "table", choices=("table", "global")),
    Setting("acid.conflict.detection", _X, "row", choices=("row", "partition")),
    Setting("acid.format.default", _X, "orc", choices=("orc", "parquet")),
    Setting("acid.isolation", _X, "snapshot", choices=("snapshot", "serializable")),
    Setting("acid.conflict.rows.bytes", _N, str(64 << 10), low=0, high=16 << 20),
    Setting("acid.conflict.memory.bytes", _N, str(64 << 20), low=0),
    Setting("acid.gateway.tls.certificate", _X, ""),
    Setting("acid.gateway.tls.key", _X, ""),
    Setting("acid.gateway.tls.ca", _X, ""),
    Setting("acid.gateway.users", _X, ""),
    Setting("acid.gateway.grants", _X, ""),
    Setting("acid.gateway.authorizer", _X, ""),
    Setting("acid.gateway.locations", _X, ""),
    Setting("acid.gateway.connections", _N, "1000", low=1, high=100_000),
    Setting("acid.gateway.threads", _N, "64", low=1, high=1000),
    Setting("acid.gateway.rate", _N, "0", low=0),
    Setting("acid.serve.lease", _T, "15min", 0, 50),
)
"""Settings that change behaviour.

`acid.format.default` is the `acid.format` of new tables with full ACID that state none.
`acid.heartbeat.interval` 0 means half of `hive.txn.timeout` (P7). A table's property
`acid.conflict.detection` overrides the setting (P38). A gateway reads `acid.gateway.…` when it
starts, and `acid serve` also `acid.serve.lease`.
"""

PATHS = (
    "acid.metastore.archive",
    "acid.gateway.tls.certificate",
    "acid.gateway.tls.key",
    "acid.gateway.tls.ca",
    "acid.gateway.users",
    "acid.gateway.grants",
    "acid.gateway.locations",
)
"""Settings that are paths, separated by commas if there are several."""

_SOFT_DELETE = "soft deletes are not built"

_POSITION = "a number in GROUP BY and ORDER BY is a position"
_FORMAT = "CREATE TABLE … STORED AS chooses another format"
_HOOKS = "hooks of Hive, which may refuse or mask, are not run"
_STRICT = "no query is refused for how much it reads"

REFUSED = tuple(
    Setting(name, kind, default, reason=reason, treatment=Treatment.REFUSED)
    for name, kind, default, reason in (
        ("hive.support.concurrency", _B, "true", "transactions need it"),
        ("hive.exec.dynamic.partition", _B, "true", "rows may always choose their partitions"),
        ("hive.exec.dynamic.partition.mode", _X, "nonstrict", "rows choose their partitions"),
        ("hive.txn.readonly.enabled", _B, "true", "reads are READ_ONLY transactions"),
        ("hive.acid.lockless.reads.enabled", _B, "false", _SOFT_DELETE),
        ("hive.acid.createtable.softdelete", _B, "false", _SOFT_DELETE),
        ("hive.acid.droppartition.usebase", _B, "false", _SOFT_DELETE),
        ("hive.acid.renamepartition.makecopy", _B, "false", _SOFT_DELETE),
        ("hive.acid.truncate.usebase", _B, "true", "TRUNCATE writes an empty base"),
        ("hive.txn.operational.properties", _N, "1", "updates are always split"),
        ("hive.txn.write.acid.version.file", _B, "true", "readers need _orc_acid_version"),
        ("hive.merge.cardinality.check", _B, "true", "MERGE would update a row twice"),
        ("hive.cli.errors.ignore", _B, "false", "the first error ends a script"),
        ("hive.default.fileformat", _X, "orc", _FORMAT),
        ("hive.default.fileformat.managed", _X, "orc", _FORMAT),
        ("hive.error.on.empty.partition", _B, "false", "an INSERT may add no rows"),
        (
            "hive.exec.default.partition.name",
            _X,
            "__HIVE_DEFAULT_PARTITION__",
            "files know the partition of NULL by this name",
        ),
        ("hive.exec.drop.ignorenonexistent", _B, "false", "write DROP … IF EXISTS"),
        ("hive.exec.pre.hooks", _X, "", _HOOKS),
        ("hive.exec.driver.run.hooks", _X, "", _HOOKS),
        ("hive.exec.query.redactor.hooks", _X, "", _HOOKS),
        (
            "hive.security.authorization.enabled",
            _B,
            "false",
            "a gateway's grants (acid.gateway.grants) say who may do what",
        ),
        ("hive.mapred.mode", _X, "nonstrict", _STRICT),
        ("hive.strict.checks.cartesian.product", _B, "false", _STRICT),
        ("hive.strict.checks.large.query", _B, "false", _STRICT),
        ("hive.strict.checks.no.partition.filter", _B, "false", _STRICT),
        ("hive.strict.checks.orderby.no.limit", _B, "false", _STRICT),
        ("hive.exec.orc.skip.corrupt.data", _B, "false", "damaged data is always an error"),
        ("hive.exec.schema.evolution", _B, "true", "older files are read by the present columns"),
        ("hive.groupby.orderby.position.alias", _B, "true", _POSITION),
        ("hive.groupby.position.alias", _B, "true", _POSITION),
        ("hive.orderby.position.alias", _B, "true", _POSITION),
        ("hive.int.timestamp.conversion.in.seconds", _B, "true", "a number is a time in seconds"),
        (
            "hive.local.time.zone",
            _X,
            "UTC",
            "statements run in UTC; write from_utc_timestamp(…) for another zone",
        ),
        ("hive.resultset.use.unique.column.names", _B, "false", "a column is called id, not t.id"),
        (
            "hive.support.quoted.identifiers",
            _X,
            "column",
            "a text in backticks is a name, not a pattern",
        ),
        (
            "spark.sql.sources.partitionOverwriteMode",
            _X,
            "DYNAMIC",
            "INSERT OVERWRITE replaces the partitions that its rows have",
        ),
        ("hive.typecheck.on.insert", _B, "true", "a value is stored unchanged or not at all"),
    )
)

REGISTRY: dict[str, Setting] = {entry.name: entry for entry in (*HONOURED, *REFUSED)}


def setting(name: str) -> Setting:
    """The registered setting. Raises SettingRefused for an unknown name."""
    registered = REGISTRY.get(name)
    if registered is None:
        raise SettingRefused(
            f"there is no setting {name!r}; `acid doctor` lists the {len(REGISTRY)} that exist"
        )
    return registered


@lru_cache(maxsize=1024)
def _parsed(name: str, text: str) -> Value:
    """Cached, since settings are read for every request and hardly ever change."""
    return setting(name).parse(text)


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in force: defaults, overridden by what was set (as checked text)."""

    overrides: Mapping[str, str]

    @classmethod
    def of(cls, overrides: Mapping[str, str] | None = None) -> Settings:
        """Raises SettingRefused for a name or value that is not allowed."""
        return _checked(tuple((overrides or {}).items()))

    def with_value(self, name: str, text: str) -> Settings:
        """A copy with one more value. Raises SettingRefused, also if two settings conflict (P7)."""
        setting(name).parse(text)
        changed = self.with_stored(name, text)
        changed.refuse_late_heartbeats()
        return changed

    def refuse_late_heartbeats(self) -> None:
        """Raises SettingRefused if two settings conflict (P7)."""
        own, timeout = self.integer("acid.heartbeat.interval"), self.integer("hive.txn.timeout")
        if own >= timeout:
            raise SettingRefused(
                f"acid.heartbeat.interval ({own} ms) is refused: it must be below"
                f" hive.txn.timeout ({timeout} ms)"
            )

    def with_stored(self, name: str, text: str) -> Settings:
        """A copy with a value that was checked when it was set. One that an earlier release has
        stored, and nothing reads any more, is left out."""
        return Settings({**self.overrides, name: text}) if name in REGISTRY else self

    def text(self, name: str) -> str:
        """The value as it was written."""
        return self.overrides.get(name, setting(name).default)

    def value(self, name: str) -> Value:
        """The typed value; times in milliseconds."""
        return _parsed(name, self.text(name))

    def integer(self, name: str) -> int:
        """A whole number, or a time in milliseconds."""
        return int(self.value(name))

    def flag(self, name: str) -> bool:
        return self.value(name) is True

    @property
    def heartbeat_interval(self) -> int:
        """Milliseconds between heartbeats: half of the timeout unless set (T9, P7)."""
        own = self.integer("acid.heartbeat.interval")
        return own or self.integer("hive.txn.timeout") // 2

    @property
    def lock_settings(self) -> LockSettings:
        return LockSettings(
            self.flag("hive.txn.xlock.write"),
            self.flag("hive.txn.xlock.iow"),
            self.flag("hive.txn.xlock.mergeinsert"),
        )

    def transient(self, error: str) -> bool:
        """Whether a store error matches `hive.txn.retryable.sqlex.regex` (P9)."""
        patterns = _patterns(self.text("hive.txn.retryable.sqlex.regex"))
        return any(re.search(pattern, error) for pattern in patterns)

    def items(self) -> Iterator[tuple[str, str]]:
        """Every setting with its value as text, in the order of the two classes."""
        return ((name, self.text(name)) for name in REGISTRY)


@lru_cache(maxsize=64)
def _checked(overrides: tuple[tuple[str, str], ...]) -> Settings:
    """Cached, since each statement has the same settings as the last."""
    chosen = Settings(dict(overrides))
    for name, text in overrides:
        setting(name).parse(text)
    chosen.refuse_late_heartbeats()
    return chosen


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The settings `hive.txn.xlock.write`, `.iow` and `.mergeinsert`."""

    xlock_write: bool = False
    xlock_iow: bool = True
    xlock_mergeinsert: bool = False
