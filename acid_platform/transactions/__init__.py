"""Transactions, snapshots, locks and conflicts as pure values."""

from acid_platform.transactions.ids import (
    NONE_OPEN,
    CompactorWriteIdList,
    Isolation,
    MalformedList,
    RangeResponse,
    RowOperation,
    TxnState,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)

__all__ = [
    "NONE_OPEN",
    "CompactorWriteIdList",
    "Isolation",
    "MalformedList",
    "RangeResponse",
    "RowOperation",
    "TxnState",
    "TxnType",
    "ValidTxnList",
    "ValidWriteIdList",
]
