"""No call takes longer than in proportion to its message (P78): each call of both servers is made
with each of its lists, maps and texts grown to n parts and to 4n."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from thriftpy2.thrift import TType

from acid_platform.errors import AcidError
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.framing import Cutter, Limits, MalformedMessage
from acid_platform.gateway.gateway import CALLS, Gateway
from acid_platform.layout.file_entries import FileEntry, Footer, RecordedFiles
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.messages import OPERATIONS, MetastoreOperation, encode
from acid_platform.metastore.rules import turn
from acid_platform.transactions import ValidTxnList, ValidWriteIdList
from acid_platform.transactions.row_sets import KeyHashes
from tests.conftest import few_then_more
from tests.gateway.calls import COLLECTIONS, DATABASES, TABLES, Filler
from tests.gateway.test_protocol import message
from tests.metastore.local import LocalLink
from tests.metastore.world import World

PARTS = 1000
TIMES = 7.0
"""How much longer four times the parts may take; a square takes sixteen times as long."""
ENOUGH = 0.15
"""Seconds of CPU that are no concern, with four times the parts."""


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def require_in_proportion(work: Callable[[int], Callable[[], object]], what: str) -> None:
    """`work(parts)` prepares what is measured. The machine may be busy: one fair try is enough."""
    seen = []
    for _ in range(3):
        more = cpu_seconds(work(4 * PARTS))
        if more < ENOUGH:
            return
        few = cpu_seconds(work(PARTS))
        if more < TIMES * few:
            return
        seen.append((round(few, 2), round(more, 2)))
    raise AssertionError(f"{what}: {PARTS} and {4 * PARTS} parts take {seen} s")


# --- calls of the gateway -------------------------------------------------------------------------


class Grown(Filler):
    """Arguments of a call of which one place, a list, map or text, has many parts."""

    deepest = 5

    def __init__(self, place: int, parts: int, choice: int = 1) -> None:
        """`choice`: the number of kinds of locks, operations and the like."""
        super().__init__(self._plain)
        self._place, self._parts, self._choice = place, parts, choice
        self.places: list[str] = []
        """All that could grow, in the order in which they are met."""
        self._number = 0

    def _grows(self, name: str) -> bool:
        self.places.append(name)
        return len(self.places) - 1 == self._place

    def _made(self, kind: int, inner: Any, name: str, depth: int) -> Any:
        if kind not in COLLECTIONS:
            return super()._made(kind, inner, name, depth)
        count = self._parts if self._grows(name) else 1
        if name in ("sortCols", "bucketCols") and count == 1:
            return []
        if kind == TType.MAP:
            key, content = inner
            if isinstance(key, tuple):  # a list can't be a key in Python
                return {}
            usual = {"transactional": "true"} if name == "parameters" else {}
            return usual | {
                self._numbered(key, "key", depth, number): self._of(content, "value", depth)
                for number in range(count)
            }
        return [self._numbered(inner, name, depth, number) for number in range(count)]

    def _numbered(self, inner: Any, name: str, depth: int, number: int) -> Any:
        """An element; those after the first are places of no use."""
        before, known = self._number, len(self.places)
        self._number = number
        made = self._of(inner, name, depth)
        self._number = before
        if number:
            del self.places[known:]
        return made

    def _plain(self, name: str, kind: int) -> Any:
        if kind == TType.STRING:
            return self._text(name, self._grows(name))
        if kind == TType.BINARY:
            return b"x"
        if kind == TType.BOOL:
            return False
        if name in ("txnid", "txn", "min", "max") or "txn" in name.lower():
            return self._number + 1
        if "type" in name.lower() or kind == TType.BYTE:
            return self._choice
        return 1.0 if kind == TType.DOUBLE else self._number + 1

    def _text(self, name: str, grows: bool) -> str:
        # A text has more parts, since each of them is small.
        low, number, parts = name.lower(), self._number, 4 * self._parts
        if grows:
            if "type" in low:
                return f"struct<{','.join(f'c{one}:int' for one in range(parts))}>"
            if "txnlist" in low:
                return f"{parts}:1::{','.join(map(str, range(1, parts)))}:"
            if "part" in low or low in ("key", "name"):
                return "/".join(f"p{one}=1" for one in range(parts))
            return "a*b|" * parts
        if low in _USUAL:
            return _USUAL[low]
        if low in DATABASES or low == "catname":
            return "default"
        if low in TABLES:
            return "t"
        if low in _PARTITIONS:
            return f"p={number}"
        if low in ("values", "part_vals", "partvals", "partitionvals"):
            return str(number)
        if "type" in low:
            return "int"
        if low == "fulltablenames":
            return "default.t"
        return f"x{number}"


_PARTITIONS = {*["partitionname", "part_name", "partname", "names", "partnames", "partitionnames"]}
_USUAL = {
    "serializationlib": "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
    "tabletype": "MANAGED_TABLE",
    "location": "",
    "locationuri": "",
}


def places_of(name: str) -> list[str]:
    grown = Grown(-1, 1)
    grown.call(name)
    return grown.places


def gateway(txns: int, home: Path) -> Gateway:
    world = World()
    world.create(partitioned=True, location=str(home / "t"))
    world.call("open_batch", count=txns, kind=0, info=encode(_info()))
    metastore = Metastore(LocalLink(world), str(home))  # type: ignore[arg-type]
    return Gateway(metastore, 0, lambda asked: asked.user == "ann")


def _info() -> Any:
    from acid_platform.gateway.authorization import THROUGH_GATEWAY
    from acid_platform.metastore.records import ClientInfo

    return ClientInfo(user="ann", host="", agent="", description=THROUGH_GATEWAY)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name, row in CALLS.items() if row.answer))
def test_P78_a_call_of_the_gateway_takes_time_in_proportion(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    ann = Caller("10.0.0.7:1", "ann")
    choices = (1, 2, 3, 6) if name == "lock" else (1,)
    served = gateway(4 * PARTS if "tx" in name or "lock" in name else 1, tmp_path)
    for place, field in enumerate(places_of(name)):
        for choice in choices:

            def work(parts: int, place: int = place, choice: int = choice) -> Callable[[], object]:
                sent = message(name, *Grown(place, parts, choice).call(name).arguments)
                return lambda: served.answer(sent, ann)

            require_in_proportion(work, f"{name}, {field} ({place})")


# --- operations of the metastore ------------------------------------------------------------------


class GrownOperation:
    """An operation of which one place, a list or a map, has many parts."""

    def __init__(self, place: int, parts: int) -> None:
        self._place, self._parts, self.places = place, parts, list[str]()

    def made(self, kind: type[MetastoreOperation[Any]]) -> MetastoreOperation[Any]:
        made: MetastoreOperation[Any] = self._value(kind, kind.op, 0)
        return made

    def _value(self, hint: Any, name: str, number: int) -> Any:
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._value(next(one for one in inner if one is not NoneType), name, number)
        if origin in (list, tuple, set, frozenset):
            if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
                return tuple(self._value(one, name, number) for one in inner)
            return origin(self._many(lambda at: self._value(inner[0], name, at), name))
        if origin is dict:
            pairs = self._many(lambda at: (f"k{at}", self._value(inner[1], name, at)), name)
            return {self._key(inner[0], key): value for key, value in pairs}
        if hint is RecordedFiles:
            footer = Footer(1, True, False)
            names = self._many(lambda at: f"bucket_{at:05d}", name)
            return RecordedFiles(tuple(FileEntry(one, 1, footer) for one in names))
        if hint is KeyHashes:
            return KeyHashes(("id",), b64encode(b"".join(self._many(_key_hash, name))).decode())
        if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
            return hint(*(self._value(one, name, number) for one in get_type_hints(hint).values()))
        if hint is ValidTxnList:
            return ValidTxnList.of(10, [], [])
        if hint is ValidWriteIdList:
            return ValidWriteIdList.of("default.t", 1)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return next(iter(hint))
        if is_dataclass(hint):
            hints = get_type_hints(hint)
            return hint(
                **{
                    field.name: self._value(hints[field.name], field.name, number)
                    for field in fields(hint)
                    if field.init
                }
            )
        return _scalar(hint, name, number)

    def _many(self, one: Callable[[int], Any], name: str) -> Iterator[Any]:
        self.places.append(name)
        count = self._parts if len(self.places) - 1 == self._place else 1
        for number in range(count):
            known = len(self.places)
            yield one(number)
            if number:
                del self.places[known:]

    def _key(self, hint: Any, key: str) -> Any:
        return key if hint is str else int(key[1:])


def _key_hash(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _scalar(hint: Any, name: str, number: int) -> Any:
    if hint is str:
        usual = {"table": "default.t", "name": "default.t", "partition": f"p={number}"}
        usual |= {
            "partitions": f"p={number}",
            "tables": "default.t",
            "directory": f"delta_{number}",
        }
        return usual.get(name, f"x{number}")
    if hint is bool:
        return False
    if hint is float:
        return 0.0
    if hint is int:
        return number + 1 if "txn" in name else 0 if name in ("kind", "wait") else number + 1
    return None


@pytest.mark.parametrize("kind", few_then_more(turn.HANDLERS, 5), ids=lambda kind: kind.op)
def test_P78_an_operation_of_the_metastore_takes_time_in_proportion(
    kind: type[MetastoreOperation[Any]],
) -> None:
    assert kind in OPERATIONS.values()
    empty = GrownOperation(-1, 1)
    try:
        empty.made(kind)
    except (AcidError, ValueError, TypeError) as error:
        pytest.fail(f"{kind.op} can't be made: {error}")
    for place, field in enumerate(empty.places):

        def work(parts: int, place: int = place) -> Callable[[], object]:
            world = World()
            world.create(partitioned=True)
            world.call("open_batch", count=4 * PARTS, kind=0, info=encode(_info()))
            args = json.loads(json.dumps(encode(GrownOperation(place, parts).made(kind))))

            def ask() -> None:
                try:
                    world.call(kind.op, **args)
                    world.tick(10)
                except Exception:
                    pass

            return ask

        require_in_proportion(work, f"{kind.op}, {field} ({place})")


@pytest.mark.parametrize(
    ("name", "place"), [("lock", 0), ("get_partitions_by_names", 2), ("abort_txns", 0)]
)
def test_P78_a_list_of_too_many_parts_is_refused_by_name(
    tmp_path: Path, name: str, place: int
) -> None:
    call = Grown(place, 10_001).call(name)
    answer = gateway(1, tmp_path).answer(message(name, *call.arguments), Caller("h:1", "ann"))
    assert b"has 10,001 parts; a call may have 10,000" in answer


def test_P78_a_text_that_is_too_long_ends_its_connection() -> None:
    cutter = Cutter(Limits())
    cutter.feed(message("get_databases", "x" * (1 << 20)))
    assert cutter.next() is not None
    cutter.feed(message("get_databases", "x" * (1 << 20) + "x")[:100])
    with pytest.raises(MalformedMessage, match="at most 1,048,576"):
        cutter.next()


def test_P78_a_large_frame_is_walked_over_in_steps() -> None:
    """Others have their turn in between, and the message is the same."""
    payload = message("get_partitions_by_names", "db", "t", ["p=1"] * 70_000)
    cutter, steps = Cutter(Limits()), 0
    cutter.feed(len(payload).to_bytes(4, "big") + payload)
    while (found := cutter.next()) is None:
        assert cutter.has_more
        steps += 1
    assert found.payload == payload and found.framed and steps == 3
