"""Transactions, snapshots, locks and conflicts as pure values."""

from acid_platform.transactions.ids import (
    NONE_OPEN,
    RowOperation,
    TableId,
    TxnId,
    TxnState,
    TxnType,
    WriteId,
)
from acid_platform.transactions.lists import (
    CompactorWriteIdList,
    MalformedList,
    RangeResponse,
    ValidTxnList,
    ValidWriteIdList,
    format_table_lists,
    parse_table_lists,
)

__all__ = [
    "NONE_OPEN",
    "CompactorWriteIdList",
    "MalformedList",
    "RangeResponse",
    "RowOperation",
    "TableId",
    "TxnId",
    "TxnState",
    "TxnType",
    "ValidTxnList",
    "ValidWriteIdList",
    "WriteId",
    "format_table_lists",
    "parse_table_lists",
]
