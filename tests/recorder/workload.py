"""What clients of a recorded history try: steps on a few keys, which change as the time goes on.

Each key is a row, a partition or a table, and each kind of table another way to write:

- `lists/7`: row 7 of a table; UPDATE appends to its text. Conflicts are judged by row.
- `parts/7`: the same in a partitioned table, where conflicts are judged by partition.
- `sets/7`: the rows with k = 7; INSERT adds one. `files/7`: the same in an insert-only table, which
  an INSERT OVERWRITE now and then writes anew, with one row more.
- `registers/7`: row 7; UPDATE or MERGE writes it.
- `whole/7`: a table; INSERT OVERWRITE writes it, so that its only row is of round 7.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from acid_platform import TableExists, Warehouse
from tests.judge.recorded import WRITES, Do, Step

TABLES: dict[str, Do] = {
    "lists": "append",
    "parts": "append",
    "sets": "add",
    "files": "add",
    "registers": "write",
    "whole": "write",
}
"""Each table with the write that its keys take."""
FED = ("lists", "sets", "registers")
"""Tables that keep their changes for a minute."""
STREAMED = ("sets", "files")
"""Tables that Spark's streams write."""
IN_PARQUET = ("parts", "registers")
"""Tables that begin in Parquet; the others do in ORC."""
OF_EITHER_FORMAT = ("lists", "parts", "registers", "whole")
"""Tables that the keeper stores in the other format now and then, all with full ACID but `sets`:
clients by Thrift write that one, and they know ORC alone."""
PARTITIONS = 3
_AT_ONCE = 2
"""Keys of each table that are in use at a time."""
_SECONDS = 10.0
"""After which other keys follow."""
_PER_PROCESS = 1_000_000
"""A process of number n writes values from n times this on, so that no value is written twice."""


def make_tables(warehouse: Warehouse) -> None:
    """The tables of all rounds, without rows; those that are there stay."""
    columns = {"append": "k int, elements string", "add": "k int, e bigint"}
    more: dict[str, dict[str, Any]] = {
        "parts": {
            "partitioned_by": ["p int"],
            "properties": {"acid.conflict.detection": "partition"},
        },
        "files": {"properties": {"transactional_properties": "insert_only"}},
    }
    for table, write in TABLES.items():
        declared = more.get(table, {})
        properties = declared.setdefault("properties", {})
        if table in FED:
            properties["acid.history.retention"] = "60s"
        if table in IN_PARQUET:
            properties["acid.format"] = "parquet"
        with suppress(TableExists):
            warehouse.create_table(f"j.{table}", columns.get(write, "k int, v bigint"), **declared)


def keys_of(round_: int, seconds: float) -> range:
    """The numbers of all keys that a round of so many seconds uses."""
    used = _AT_ONCE * (int(seconds / _SECONDS) + 2)
    assert used < 1000
    return range(1000 * round_, 1000 * round_ + used)


def make_rows(warehouse: Warehouse, round_: int, seconds: float) -> None:
    """The rows that UPDATE will change."""
    keys = keys_of(round_, seconds)
    with warehouse.transaction() as txn:
        txn.table("j.lists").insert([{"k": k, "elements": ""} for k in keys])
        txn.table("j.parts").insert([{"k": k, "elements": "", "p": k % PARTITIONS} for k in keys])
        txn.table("j.registers").insert([{"k": k, "v": None} for k in keys])


def all_reads(round_: int, seconds: float) -> list[Step]:
    """A read of every key of a round."""
    return [
        Step(WRITES[write], f"{table}/{k}", None)
        for table, write in TABLES.items()
        for k in (keys_of(round_, seconds) if table != "whole" else [round_])
    ]


@dataclass
class Plans:
    """The transactions of one process, by chance. A read has no value yet."""

    random: Random
    round: int
    process: int
    """Its number, which no other process of the run has."""
    values: int = 0
    """So many values it has written."""

    def transaction(self, seconds: float, tables: tuple[str, ...] = (*TABLES,)) -> list[Step]:
        """Steps on keys that are in use so many seconds after the round began. Half of the keys
        that are written are read before."""
        steps: list[Step] = []
        for _ in range(self.random.choice((1, 1, 2, 2, 3, 4))):
            key = self._key(self.random.choice(tables), seconds)
            write = TABLES[key.partition("/")[0]]
            writes = self.random.random() < 0.6
            if not writes or self.random.random() < 0.5:
                steps.append(Step(WRITES[write], key, None))
            again = any(step.writes and step.key == key for step in steps)
            if writes and not (write == "write" and again):
                self.values += 1
                steps.append(Step(write, key, self.process * _PER_PROCESS + self.values))
        return steps

    def reads(self, seconds: float, tables: tuple[str, ...] = (*TABLES,)) -> list[Step]:
        """Reads alone, some of them twice."""
        chosen = self.random.choices(tables, k=self.random.randint(1, 5))
        steps = [Step(WRITES[TABLES[table]], self._key(table, seconds), None) for table in chosen]
        return steps + steps[: self.random.randint(0, 2)]

    def batch_or_reads(self, seconds: float) -> list[Step]:
        """What a stream writes into one table, or reads of one."""
        steps = self.transaction(seconds, (self.random.choice(STREAMED),))
        writes = [step for step in steps if step.writes]
        if writes and self.random.random() < 0.7:
            return writes
        return self.reads(seconds, (self.random.choice(FED),))

    def _key(self, table: str, seconds: float) -> str:
        if table == "whole":
            return f"whole/{self.round}"
        first = 1000 * self.round + _AT_ONCE * int(seconds / _SECONDS)
        return f"{table}/{first + self.random.randrange(_AT_ONCE)}"
