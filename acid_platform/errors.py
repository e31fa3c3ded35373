"""Every error that the platform raises.

Two families, so that a caller can decide without reading texts: `Terminal` (the call must be
changed) and `Transient` (the same call may succeed later). Each text says what went wrong, with
which table, transaction or file, and what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SEEN = (
    "\x00-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"  # breaks and directions
    "\ud800-\udfff"  # halves of characters, which no stream can encode
)


_ANY = re.compile(f"[{_SEEN}]")


_LAYOUT = "\n\t"


def visible(text: str, lines: bool = False) -> str:
    """The text with its control characters made visible; `lines`: but for breaks and tabs."""
    return _ANY.sub(_kept_layout if lines else _shown, text)


def _shown(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode("ascii")


def _kept_layout(match: re.Match[str]) -> str:
    return match[0] if match[0] in _LAYOUT else _shown(match)


_SECRET = re.compile(
    r"([?&][\w.-]{0,40}?(?:sig|secret|token|passw|pwd|key|credential)[\w.-]{0,40}=)[^&\s'\"]+"
    r"|(://[^/\s:@'\"]{0,200}:)[^/\s@'\"]{1,200}(?=@)",
    re.IGNORECASE,
)
"""What gives a right to whoever has the address: a parameter that signs it, or a password."""


_LONGEST = 16_000
"""How many characters of an error are shown."""
_PASSWORD = 500
"""The `@` that ends a password comes at most so many characters after the password begins."""


def shortened(text: str, left_out: int = 0) -> str:
    """The text, of which the end is left out if it is very long, as a name of a megabyte is; and
    how many characters that are, with those that were left out before."""
    left_out += max(0, len(text) - _LONGEST)
    return f"{text[:_LONGEST]}… ({left_out:,} characters more)" if left_out else text


class AcidError(Exception):
    """Base of all errors of the platform.

    Its text may repeat names and values of other people, so the end of a very long one is left
    out, control characters are made visible; and addresses, of which no secret is shown.
    """

    def __str__(self) -> str:
        text = super().__str__()
        begin = _SECRET.sub(r"\1\2***", text[: _LONGEST + _PASSWORD])
        return visible(shortened(begin, max(0, len(text) - _LONGEST - _PASSWORD)), lines=True)


class Terminal(AcidError):
    """Repeating the call will fail again: fix the call, the data or the configuration."""


class Transient(AcidError):
    """Repeating the call, or the whole transaction, may succeed."""


# --- names and declarations -------------------------------------------------------------------


class NoSuchTable(Terminal):
    """The table is not in the metastore."""


class TableExists(Terminal):
    """A table of that name is in the metastore already."""


class NoSuchPartition(Terminal):
    """The table has no such partition, or is not partitioned, or rows lack a partition column."""


class NotCleaned(Transient):
    """The place of a partition still has rows of an earlier one, which other engines would read
    (P22)."""


class InvalidDefinition(Terminal):
    """A declaration of a table, column, type, partition or property is not possible."""


class DeclarationChanged(Transient):
    """A table was altered, dropped or made again since its declaration was read (P28)."""


class UnknownColumn(Terminal):
    """A column that the table does not have."""


class WrongType(Terminal):
    """A value or column whose type does not fit the table's column without loss."""


class RowsTaken(WrongType):
    """A stream gives its rows once, and they were taken before (P59)."""


class ConstraintViolated(Terminal):
    """A row violates a constraint of its table, and the statement that brought it wrote nothing."""


class PartitionColumnUpdate(Terminal):
    """UPDATE can't assign a partition column: delete and insert instead."""


class InvalidExpression(Terminal):
    """A predicate or assignment that does not parse, or does not resolve against the table."""


class UnsupportedStatement(Terminal):
    """A SQL statement outside the supported set; the text says what to write instead."""


class NeedsSpark(UnsupportedStatement):
    """The local engine can't run the statement as Spark would. With engine="auto" Spark runs it."""


class OutOfMemory(Terminal):
    """A statement of the local engine needs more memory than it may take, or more room on the disk
    of temporary files than there is (P59). Nothing was written."""


class BucketColumnUpdate(Terminal):
    """UPDATE can't move a row to another bucket."""


class SourceRowsAmbiguous(Terminal):
    """MERGE: several source rows would change one row of the table."""


class SettingRefused(Terminal):
    """The platform refuses a setting, or its value (P7, P9)."""


# --- environment ------------------------------------------------------------------------------


class NoSuchWarehouse(Terminal):
    """There is no warehouse at this place."""


class WarehouseNotWritable(Terminal):
    """The warehouse directory can't be created or written."""


class WarehouseMismatch(Terminal):
    """The directory and the metastore belong to different warehouses (P31)."""


class WarehouseMoved(Terminal):
    """The warehouse is no longer where this handle found it: open it where it is now (P31)."""


class ForeignLocation(Terminal):
    """The files may belong to the warehouse that this one was copied from: take them over, or leave
    them alone (P31)."""


class JavaMissing(Terminal):
    """No Java 17 or newer was found, which Spark needs."""


class SparkLost(Transient):
    """The JVM of the Spark session, or the Spark Connect server, has ended while it was needed
    (P60)."""


class SparkMisconfigured(Terminal):
    """The Spark session lacks a setting that correct results depend on (P17), or the Python of its
    tasks lacks our code."""


class OwnedByOthers(Terminal):
    """This process would have to trust a file or directory of another user, or one that others may
    use (P69)."""


class MetastoreInUse(Terminal):
    """Another process owns this metastore file."""


class MetastoreIncompatible(Terminal):
    """The metastore file can't be served: newer schema, network file system, unsafe settings."""


class MetastoreDamaged(Terminal):
    """The metastore's files are damaged, or don't belong together: restore a backup (P3)."""


class MetastoreMissing(Terminal):
    """There are tables, but not their metastore: restore or rebuild it (P31)."""


class RebuildRefused(Terminal):
    """The metastore can't be rebuilt from the directories as requested (P24)."""


class MetastoreRefused(Terminal):
    """The metastore does not accept this client: it has no key, or the wrong one."""


class NotAuthorized(Terminal):
    """The user may not do this to this table."""


class MetastoreUnavailable(Transient):
    """The metastore process can't be reached or started."""


class MetastoreWriteFailed(Terminal):
    """The metastore could not write its journal, as on a full disk; nothing was changed (P3)."""


class BackupRefused(Terminal):
    """The backup can't be written, or the file can't be restored, as requested."""


class StoreRefused(Terminal):
    """The object store refuses the credentials or the access, or has no such bucket."""


class StoreUnavailable(Transient):
    """The object store can't be reached, does not answer in time, or asks to slow down."""


# --- files --------------------------------------------------------------------------------------


class MalformedName(Terminal):
    """A file or directory whose name claims to be ACID but does not follow the grammar."""


class CorruptFile(Terminal):
    """A data file is torn, empty although it must not be, or lacks ACID columns or metadata."""


class UnsupportedLayout(Terminal):
    """This version does not read files of this kind (the text says which)."""


class NotEnoughHistory(Terminal):
    """The snapshot is older than the oldest base that is left, or than the history that is kept
    (F14, P13, P36)."""


class NoSuchBranch(Terminal):
    """There is no branch of that name (P80)."""


class BranchInUse(Transient):
    """A transaction still writes on the branch (P80)."""


class NoSuchPast(Terminal):
    """The table never was as requested: an unknown or uncommitted write id, a time to come, an
    unknown tag (P36)."""


class NotErased(Terminal):
    """An erasure that could not remove every file with the rows; the text says which are left, who
    holds them, and the way out. `erasure` is its report."""

    def __init__(self, text: str, erasure: object = None) -> None:
        super().__init__(text)
        self.erasure = erasure


class PublicationFailed(Transient):
    """The written rows differ from the counted ones, can't be put into place, or did not reach the
    disk; nothing was committed (P19, P27)."""

    in_the_way = ""
    """The directory that was there already, if that is why."""


class ImportRefused(Terminal):
    """A source can't be imported as requested; the text names it, and the column or commit."""


class CompactionMismatch(Terminal):
    """Input and output of a compaction differ; the inputs were kept."""


# --- transactions -------------------------------------------------------------------------------


class NoSuchTxn(Terminal):
    """The transaction is unknown, or has ended differently than requested (T7, T12)."""


class TxnAborted(Transient):
    """The transaction was aborted: by its owner, by an operator or by the reaper (T10, P2)."""


class WriteConflict(TxnAborted):
    """First committer wins: an overlapping transaction changed the same entity (T31, T33, P6)."""


class BatchCommitted(Terminal):
    """This batch of the streaming query was committed before: nothing is left to do (P42)."""


class StreamRefused(Terminal):
    """A streaming query can't go on: its checkpoint does not fit what the table has seen (P42)."""


class MalformedRows(Terminal):
    """A commit names the rows that it changed in a form that can't be read (P38)."""


class OverwriteThenWrite(Terminal):
    """The transaction writes again to an entity that it overwrote: commit first (P6)."""


class ReadOnlyTxn(Terminal):
    """A read-only transaction can't write (T17)."""


class TooManyOpenTxns(Transient):
    """The limit of open transactions is reached (T2)."""


class LockNotAcquired(Transient):
    """A zero-wait lock was blocked (L10)."""


class LockTimeout(Transient):
    """The lock was not granted within the requested wait (L11)."""


class NoSuchLock(Terminal):
    """The lock request has ended, or never existed (L12)."""


class OutcomeUnknown(Transient):
    """The reply was lost and the outcome is unknown; it does not mean "not committed" (P3)."""


class SnapshotOutdated(Transient):
    """A transaction of one statement missed a commit: begin again with its locks (T40, P30)."""


class SnapshotExpired(Transient):
    """A DataFrame's files are gone, because its read lease has ended: call read() again (P12)."""


# --- compaction ---------------------------------------------------------------------------------


class AlreadyScheduled(Terminal):
    """A compaction of the entity is queued or running, or there is nothing new to compact (C24)."""


class CompactionRefused(Terminal):
    """The requested compaction is not possible or not needed (C27, C29)."""


class PublicationWaited(CompactionRefused):
    """Other engines read the table, so the output of a compaction could not be brought into place
    in time; it was dropped, and the compaction may be tried again (P46)."""


class CompactionFailed(Transient):
    """The compaction task failed; the table's data is untouched (C32)."""


class LeaseHeld(Transient):
    """Another Initiator or Cleaner of this warehouse is in the middle of a cycle (P9)."""


class CompactionLost(Transient):
    """The task was revoked and given to another worker; this attempt's output was dropped (P21)."""


# --- data quality -------------------------------------------------------------------------------


class CheckErrored(Terminal):
    """An expectation could not be evaluated, so it says nothing about the data."""


def error_class(name: str) -> type[AcidError]:
    """The error class with this name; AcidError for an unknown name."""
    return _BY_NAME.get(name, AcidError)


def _with_subclasses(kind: type[AcidError]) -> Iterator[type[AcidError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _with_subclasses(below)


_BY_NAME = {kind.__name__: kind for kind in _with_subclasses(AcidError)}
