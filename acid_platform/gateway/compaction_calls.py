"""Calls of compactions: our queue and our Workers do them."""

from __future__ import annotations

from typing import Any

from acid_platform.errors import AlreadyScheduled, InvalidDefinition
from acid_platform.gateway.call_handler import CallHandler
from acid_platform.gateway.protocol import load
from acid_platform.gateway.shapes import CompactionType
from acid_platform.metastore import operations as ops


class CompactionCalls(CallHandler):
    def compact2(self, request: Any) -> Any:
        """Queues a compaction; one that is queued already is not accepted, which is no error."""
        if request.type not in set(CompactionType):
            raise InvalidDefinition(f"compactions of type {request.type} are not built")
        kind = CompactionType(request.type).name.lower()
        entity = (f"{request.dbname}.{request.tablename}", request.partitionname or None)
        try:
            number = self._metastore.request_compaction(
                *entity, kind, request.properties or {}, request.initiatorId or "gateway"
            )
        except AlreadyScheduled as error:
            queue = self._metastore.call(ops.GetQueue())
            return load().CompactionResponse(
                id=next((task.id for task in queue if (task.table, task.partition) == entity), 0),
                state="refused",
                accepted=False,
                errormessage=str(error),
            )
        return load().CompactionResponse(id=number, state="initiated", accepted=True)

    def compact(self, request: Any) -> None:
        self.compact2(request)

    def show_compact(self, _request: Any) -> Any:
        m, sees = load(), self._sight.table
        return m.ShowCompactResponse(
            compacts=[
                m.ShowCompactResponseElement(
                    id=row["compactionid"],
                    dbname=row["dbname"],
                    tablename=row["tabname"],
                    partitionname=_or_none(row["partname"]),
                    type=CompactionType[row["type"]],
                    state=row["state"],
                    workerid=_or_none(row["workerid"]),
                    start=_number(row["starttime"]),
                    endTime=_number(row["committime"]),
                    hightestTxnId=_number(row["highestwriteid"]),
                    hadoopJobId=_or_none(row["hadoopjobid"]),
                    errorMessage=_or_none(row["errormessage"]),
                    enqueueTime=_number(row["enqueuetime"]),
                    initiatorId=_or_none(row["initiatorid"]),
                )
                for row in self._metastore.compactions()
                if sees(f"{row['dbname']}.{row['tabname']}")
            ]
        )


def _or_none(value: Any) -> str | None:
    """The listing says `None` for an empty field (C62)."""
    return None if value == "None" else str(value)


def _number(value: Any) -> int | None:
    return None if value == "None" else int(value)
