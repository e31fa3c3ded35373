"""Every table property that the platform reads: its values, its default, and who reads it.

CREATE TABLE, ALTER TABLE, the gateway and adoption check properties here, and the page of settings
is printed from here. A name outside of the platform's namespaces, such as `owner.team`, is kept
without a check, unless it is nearly one of ours, such as `orc.compres`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from acid_platform.base.arguments import nearest_name, refuse_half_characters, require_texts
from acid_platform.base.config import REGISTRY, Setting, SettingKind, Treatment, Value
from acid_platform.errors import InvalidDefinition, SettingRefused

THRESHOLD_PREFIX = "compactorthreshold."
JOB_PREFIX = "compactor."
_LINES_LEFT_OUT = ("skip.header.line.count", "skip.footer.line.count")
_NAMESPACES = ("acid.", JOB_PREFIX, THRESHOLD_PREFIX)
_NO_EFFECT = tuple(f"{JOB_PREFIX}{engine}." for engine in ("mapreduce", "mapred", "tez", "yarn"))
"""Settings of Hive's compaction jobs, which tables bring along from Hive; no such job runs here."""

_ALMOST_OURS = ("serialization.format",)
"""Properties of Hive whose names are nearly those of others."""


@dataclass(frozen=True, slots=True)
class TableProperty:
    """One property: the values that it may have, and what follows from them."""

    values: Setting
    meaning: str
    read_by: str
    fixed: bool = False
    """Files were written by it, so ALTER TABLE may not change it."""
    any_case: bool = False
    """Whether the name counts in any letter case, as in Hive."""

    @property
    def name(self) -> str:
        return self.values.name

    def stated(self, properties: Mapping[str, str]) -> str | None:
        """The text in `properties`, or None if the table doesn't have the property."""
        if self.any_case:
            names = (name for name in properties if name.upper() == self.name.upper())
            return next((properties[name] for name in names), None)
        return properties.get(self.name)

    def text(self, properties: Mapping[str, str]) -> str:
        """The property's text, or the default.

        Words that only properties have are in lower case: Hive takes theirs in any.
        """
        text = self.stated(properties)
        if text is None:
            return self.values.default
        return text.lower() if self.values.choices and self.name not in REGISTRY else text

    def value(self, properties: Mapping[str, str]) -> Value:
        """The typed value, times in milliseconds. Raises SettingRefused for another text."""
        return self.values.parse(self.text(properties))


def _words(name: str, default: str, *choices: str) -> Setting:
    return Setting(name, SettingKind.TEXT, default, choices=choices)


TRANSACTIONAL = TableProperty(
    Setting(
        "transactional",
        SettingKind.BOOL,
        "true",
        reason="every table here is transactional",
        treatment=Treatment.REFUSED,
    ),
    "the table has transactions",
    "Hive, Trino",
    fixed=True,
)
TRANSACTIONAL_KIND = TableProperty(
    _words("transactional_properties", "default", "default", "insert_only"),
    "`default`: full CRUD; `insert_only`: rows are only added or overwritten; `ALTER TABLE …"
    " CONVERT TO ACID` writes the rows again, with row ids",
    "every write and read",
    fixed=True,
)
FILE_FORMAT = TableProperty(
    _words("acid.format", "orc", "orc", "parquet", "json", "csv", "text", "avro"),
    "the format of the table's files; those of a table with full ACID are orc or parquet",
    "every write and read",
    fixed=True,
)
FIELD_DELIMITER = TableProperty(
    Setting("field.delim", SettingKind.TEXT, ""),
    "what separates fields in csv (default `,`) and text files (default `\\x01`)",
    "every write and read of csv and text",
    fixed=True,
)
NULL_TEXT = TableProperty(
    Setting("serialization.null.format", SettingKind.TEXT, ""),
    "NULL in csv (default: empty) and text files (default `\\N`)",
    "every write and read of csv and text",
    fixed=True,
)
BUCKETING_VERSION = TableProperty(
    _words("bucketing_version", "1", "1", "2"),
    "the hash that chooses a row's bucket; new tables state 2",
    "every write of a bucketed table",
    fixed=True,
)
CODEC = TableProperty(
    _words(
        "orc.compress", "zlib", "none", "zlib", "snappy", "lz4", "zstd", "lzo", "brotli",
        "uncompressed",
    ),
    "the codec of ORC files to be written; new tables state ZSTD, unless their layout is hive3;"
    " LZO and BROTLI can't be written here",
    "every write",
)  # fmt: skip
LAYOUT = TableProperty(
    _words("acid.layout", "hive4", "hive4", "hive3"),
    "how compacted directories are named",
    "compaction",
)
DISTRIBUTION = TableProperty(
    _words("acid.write.distribution", "partition", "partition", "none"),
    "`partition`: Spark sends the rows of a partition to few tasks, so that it gets few files;"
    " `none`: each task writes its own rows, in their order, into all their partitions",
    "INSERT in Spark",
)
SORT_COLUMNS = TableProperty(
    Setting("acid.sort.columns", SettingKind.TEXT, ""),
    "columns, such as `day, id`, by which major compactions sort the rows of each file, so that a"
    " range of them skips row groups; of tables with full ACID in Parquet",
    "compaction",
)
CONFLICT_DETECTION = TableProperty(
    REGISTRY["acid.conflict.detection"],
    "what two transactions may not both change",
    "commit",
)
ISOLATION = TableProperty(
    REGISTRY["acid.isolation"],
    "`serializable`: a transaction that reads or writes the table, and writes something, commits"
    " only if nobody has changed what it read",
    "commit",
)
HISTORY_RETENTION = TableProperty(
    REGISTRY["acid.history.retention"],
    "how long past snapshots and changes stay readable",
    "Cleaner, time travel, change feed",
)
CONSUMER_RETENTION = TableProperty(
    REGISTRY["acid.consumer.retention"],
    "how long changes stay that a registered consumer has not read",
    "Cleaner, change feed",
)
NO_AUTO_COMPACTION = TableProperty(
    _words("NO_AUTO_COMPACTION", "false", "true", "false"),
    "compact only on request",
    "Initiator",
    any_case=True,
)
NO_CLEANUP = TableProperty(
    _words("NO_CLEANUP", "false", "true", "false"),
    "remove no file",
    "Cleaner, erasure",
    any_case=True,
)

COMMENT = "comment"
"""The property that is the comment of a table or view, as in Hive."""
REGISTERED_FROM = TableProperty(
    Setting("acid.registered.from", SettingKind.TEXT, ""),
    "the warehouse whose table this is; set by `acid register` in another metastore",
    "`acid register`, `acid adopt`",
)
REGISTERED_ABORTED = TableProperty(
    Setting("acid.registered.aborted", SettingKind.TEXT, ""),
    "the write ids that were aborted there because they were here: after a compaction nobody here"
    " remembers them, and nothing of them is left",
    "`acid register`, `acid adopt`",
)

DELTA_NUM, DELTA_PCT = "hive.compactor.delta.num.threshold", "hive.compactor.delta.pct.threshold"
MOST_DELTAS = "hive.compactor.max.num.delta"
QUEUES = ("hive.compactor.job.queue", "mapreduce.job.queuename", "mapred.job.queue.name")
"""The names of a job's queue, the first that is given counts."""
LOCAL_COMPACTION_BYTES = "acid.local.compaction.max.bytes"
PUBLICATION_WAIT = "acid.compaction.publication.wait"


def _override(prefix: str, name: str, read_by: str) -> TableProperty:
    """A property that replaces a setting of the warehouse for one table."""
    values = REGISTRY.get(name, Setting(name, SettingKind.TEXT, ""))
    return TableProperty(
        replace(values, name=prefix + name), "replaces the setting for this table", read_by
    )


THRESHOLDS = tuple(
    _override(THRESHOLD_PREFIX, name, "Initiator") for name in (DELTA_NUM, DELTA_PCT)
)
JOB_SETTINGS = tuple(
    _override(JOB_PREFIX, name, "Worker")
    for name in (MOST_DELTAS, LOCAL_COMPACTION_BYTES, PUBLICATION_WAIT, *QUEUES)
)

TABLE_PROPERTIES: tuple[TableProperty, ...] = (
    TRANSACTIONAL,
    TRANSACTIONAL_KIND,
    FILE_FORMAT,
    FIELD_DELIMITER,
    NULL_TEXT,
    BUCKETING_VERSION,
    CODEC,
    LAYOUT,
    DISTRIBUTION,
    SORT_COLUMNS,
    CONFLICT_DETECTION,
    ISOLATION,
    HISTORY_RETENTION,
    CONSUMER_RETENTION,
    NO_AUTO_COMPACTION,
    NO_CLEANUP,
    REGISTERED_FROM,
    REGISTERED_ABORTED,
    *THRESHOLDS,
    *JOB_SETTINGS,
)
_BY_NAME = {entry.name: entry for entry in TABLE_PROPERTIES}
_BY_UPPER_NAME = {entry.name.upper(): entry for entry in TABLE_PROPERTIES if entry.any_case}


def registered(name: str) -> TableProperty | None:
    """The property with this name; None for a name that the platform doesn't read."""
    return _BY_NAME.get(name) or _BY_UPPER_NAME.get(name.upper())


def require_property_texts(properties: object) -> None:
    """Raises InvalidDefinition unless that is None, or a mapping of texts."""
    expected = "a dict of texts, such as {'orc.compress': 'ZSTD'}"
    require_texts("properties", properties, expected, InvalidDefinition)


def check(what: str, properties: Mapping[str, str]) -> None:
    """Checks the names and values of properties; `what` has them, such as a table.

    Raises InvalidDefinition for an unknown name in one of the platform's namespaces, with the
    nearest name, for a value that is not allowed, and for a promise that nobody keeps (P72).
    """
    refuse_promises(what, properties)
    for name, text in properties.items():
        refuse_half_characters(f"{name}={text}", f"{what}: the property", InvalidDefinition)
        entry = registered(name)
        if entry is not None:
            try:
                entry.value({name: text})
            except SettingRefused as error:
                raise InvalidDefinition(f"{what}: table property {error}") from error
        elif name.lower() in _LINES_LEFT_OUT and text.strip() not in ("", "0"):
            raise InvalidDefinition(
                f"{what}: {name}={text} is not supported, since each line of a file is a row; leave"
                " it out"
            )
        elif name.lower().startswith(_NAMESPACES) and not name.startswith(_NO_EFFECT):
            raise InvalidDefinition(f"{what}: {_unknown(name)}")
        elif near := _meant(name):
            raise InvalidDefinition(f"{what}: {name!r} would have no effect; did you mean {near}?")


def _meant(name: str) -> str | None:
    """The property of ours that this name of somebody else's is almost."""
    if name in _ALMOST_OURS:
        return None
    names = {entry.name.lower(): entry.name for entry in TABLE_PROPERTIES}
    nearest = difflib.get_close_matches(name.lower(), names, 1, 0.88)
    return names[nearest[0]] if nearest else None


def check_request(what: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Checks the properties of a request for a compaction; returns the names without effect.

    Raises InvalidDefinition for a name that no compaction reads, and for a wrong value.
    """
    check(what, properties)
    names = [entry.name for entry in JOB_SETTINGS]
    ignored = tuple(name for name in properties if name.startswith(_NO_EFFECT))
    for name in properties:
        if name not in (*names, *ignored):
            raise InvalidDefinition(
                f"{what}: no compaction reads the property {name!r}; they read {', '.join(names)}"
            )
    return tuple(name for name in ignored if name not in names)


def _unknown(name: str) -> str:
    setting = name.removeprefix(THRESHOLD_PREFIX).removeprefix(JOB_PREFIX)
    nearest = nearest_name(name, _BY_NAME, 0.75)
    if setting in REGISTRY:
        advice = f"{setting} is a setting of the whole warehouse"
    else:
        advice = f"did you mean {nearest}?" if nearest else "leave it out"
    return f"there is no table property {name!r}; {advice}"


def check_change(
    table: str, properties: Mapping[str, str], changes: Mapping[str, str | None]
) -> None:
    """Checks what ALTER TABLE sets (None: removes) on a table that has `properties`.

    Raises InvalidDefinition.
    """
    for name, text in changes.items():
        entry = registered(name)
        if entry is None or not entry.fixed:
            continue
        after = entry.text({} if text is None else {name: text})
        if after.lower() != entry.text(properties).lower():
            raise InvalidDefinition(
                f"{table}: {name}={after!r} would misread the existing files; make another table"
                " with it by CREATE TABLE … AS SELECT"
            )
    check(table, {name: text for name, text in changes.items() if text is not None})
    merged = {**properties, **changes}
    changed = {name: text for name, text in merged.items() if text is not None}
    becomes_hive3 = LAYOUT.text(changed) == "hive3" != LAYOUT.text(properties)
    if becomes_hive3 and CODEC.text(changed) == "zstd":
        raise InvalidDefinition(
            f"{table}: Hive 3 can't read {CODEC.name}=ZSTD; set {CODEC.name} to ZLIB in the same"
            " statement, and run a major compaction for the files that are there"
        )


# --- properties that promise a protection (P72) ------------------------------------------------
#
# A table that only says that it is immutable or encrypted is worse than one that does not say so.

_RIGHTS = "a gateway's grants (acid.gateway.grants) say who may write"
_CLEAR = "the files are written in clear text"
_OFF = ("", "false")

_NOT_KEPT: dict[str, tuple[tuple[str, ...], str]] = {
    "immutable": (_OFF, f"INSERT adds rows to it; {_RIGHTS}"),
    "readonly": (_OFF, f"its tables can be written; {_RIGHTS}"),
    **dict.fromkeys(("no_drop", "no_drop_cascade"), (_OFF, f"it can be dropped; {_RIGHTS}")),
    "offline": (_OFF, f"it can be read and written; {_RIGHTS}"),
    "read_only": (_OFF, f"it can be written; {_RIGHTS}"),
    "protect_mode": (("",), f"it can be read, written and dropped; {_RIGHTS}"),
    "delta.appendonly": (_OFF, f"its rows can be changed; {_RIGHTS}"),
    "auto.purge": (("", "true"), "what is dropped goes to no trash"),
    "external.table.purge": (("", "true"), "DROP TABLE removes its files"),
    "gc.enabled": (("", "true"), "the Cleaner removes old files, unless NO_CLEANUP is true"),
    "defaulttabletype": (
        ("", "acid", "managed", "managed_table"),
        "DROP TABLE removes the files of each table that is not declared as EXTERNAL",
    ),
    "external": (_OFF, "DROP TABLE removes its files, unless CREATE EXTERNAL TABLE made it"),
    "partition.retention.period": (("",), "no partition goes by itself; DELETE or drop it"),
    "discover.partitions": (_OFF, "MSCK REPAIR TABLE adds partitions, and nothing else does"),
    "orc.encrypt": (("",), _CLEAR),
    "orc.mask": (("",), _CLEAR),
}
"""By name in lower case: the values that promise nothing, and what happens whatever it says."""
_ENCRYPTION = ("orc.key.", "parquet.encryption.", "parquet.crypto.", "encryption.")
_FILES_STAY = ("auto.purge", "external", "external.table.purge", "gc.enabled")
"""What is kept where no file is ever removed."""


def refuse_promises(
    what: str, properties: Mapping[str, str | None], external: bool = False
) -> None:
    """Raises InvalidDefinition for a property that promises a protection which nobody keeps.

    `what` has the properties, such as a table or a database; `external`: one whose files are only
    read.
    """
    for name, text in properties.items():
        key = name.lower()
        harmless, instead = _NOT_KEPT.get(key, (None, _CLEAR))
        if harmless is None and key.startswith(_ENCRYPTION):
            harmless = ("",)
        if harmless is None or text is None or (external and key in _FILES_STAY):
            continue
        if text.strip().lower() not in harmless:
            raise InvalidDefinition(
                f"{what}: {name}={text!r} is refused, since nothing here keeps what it promises:"
                f" {instead}; leave it out"
            )
