"""Which exception of the protocol tells the client of which error."""

from __future__ import annotations

from acid_platform import errors
from acid_platform.errors import AcidError
from acid_platform.gateway.protocol import Call

_OBJECT = ("NoSuchObjectException", "UnknownTableException", "UnknownDBException")
_REFUSED = (
    "InvalidOperationException",
    "InvalidObjectException",
    "TxnOpenException",
    "MetaException",
)
_ABORTED = ("TxnAbortedException", "NoSuchTxnException", "MetaException")

_TOLD: tuple[tuple[type[AcidError], tuple[str, ...]], ...] = (
    (errors.NoSuchTable, _OBJECT),
    (errors.NoSuchPartition, _OBJECT),
    (errors.TableExists, ("AlreadyExistsException",)),
    (errors.NoSuchTxn, ("NoSuchTxnException",)),
    (errors.NoSuchLock, ("NoSuchLockException",)),
    (errors.TxnAborted, _ABORTED),
    (errors.SnapshotExpired, _ABORTED),
    (errors.DeclarationChanged, _ABORTED),
    (errors.UnsupportedStatement, _REFUSED),
    (errors.InvalidDefinition, _REFUSED),
    (errors.WrongType, _REFUSED),
)
"""The first exception that the call declares is used; other errors are MetaException."""


def tell(call: Call, error: AcidError) -> bytes:
    """The answer that reports the error."""
    declared = call.declared()
    message = " ".join(str(error).split())
    kinds = next((names for kind, names in _TOLD if isinstance(error, kind)), ())
    for kind in (*kinds, "MetaException"):
        if kind in declared:
            return call.raised(declared[kind], kind, message)
    return call.failed(f"{type(error).__name__}: {message}")
