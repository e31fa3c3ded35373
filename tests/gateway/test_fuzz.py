"""Mutated bytes at a connection that wants a login: no crash, no leak, nobody comes in (P34).

`python -m tests.gateway.test_fuzz 100000` runs as many connections and prints what they did.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from acid_platform.base.ports import FewLines
from acid_platform.gateway import framing
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.client_connection import Bounds, ClientConnection
from acid_platform.gateway.framing import Limits
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.logins import Proof
from acid_platform.metastore.client.metastore import Metastore
from tests.gateway.calls import any_call
from tests.gateway.test_protocol import CALLS, _Silent, framed
from tests.metastore.local import LocalLink
from tests.metastore.world import World
from tests.raw_errors import no_raw_errors

USER, PASSWORD = "ann", "secret"
RIGHT = framing.client_opening(USER, PASSWORD)
PLAIN = framing.written(framing.SaslStatus.START, b"PLAIN")
OPENINGS = (
    RIGHT,
    framing.client_opening(USER, "wrong"),
    framing.client_opening("eve", PASSWORD),
    framing.written(framing.SaslStatus.START, b"GSSAPI")
    + framing.written(framing.SaslStatus.OK, b"\x60\x82\x02\x00"),
    framing.written(framing.SaslStatus.START, b"PLAIN")
    + framing.written(framing.SaslStatus.COMPLETE, b"a\0ann\0secret"),
    b"",
)
_BOUNDS = Bounds(message=Limits(bytes=4096, values=100, depth=10), buffer=1 << 20)


class _Transport:
    """Takes what is written, or gets stuck."""

    def __init__(self, connection: ClientConnection, dice: random.Random) -> None:
        self._connection, self._stuck = connection, dice.random() < 0.05
        self.written = bytearray()
        self.closed = False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_extra_info(self, _name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.closed

    def write(self, content: bytes) -> None:
        self.written += content
        if self._stuck:
            self._connection.pause_writing()

    def close(self) -> None:
        self.closed = True

    abort = close


class _House:
    """A server whose calls are answered at once, or after the next bytes."""

    bounds = _BOUNDS

    def __init__(self, dice: random.Random) -> None:
        self._gateway = Gateway(_Silent(), lock_wait=0)  # type: ignore[arg-type]
        self._dice = dice
        self.bytes = 0
        self.told: Counter[str] = Counter()
        self.later: list[Callable[[], None]] = []
        self.refusals = FewLines(logging.getLogger("acid_platform.gateway"))

    def left(self, _connection: ClientConnection) -> None: ...

    def settled(self, _connection: ClientConnection) -> None: ...

    def entered(self, connection: ClientConnection) -> str:
        connection.counted_for = connection.caller.user
        return ""

    def buffered(self, _connection: ClientConnection, change: int) -> bool:
        self.bytes += change
        assert self.bytes >= 0
        return self.bytes <= self.bounds.buffer

    def must_log_in(self, caller: Caller) -> bool:
        return not caller.user

    def _soon(self, tell: Callable[[], None]) -> None:
        if self._dice.random() < 0.5:
            tell()
        else:
            self.later.append(tell)

    def log_in(
        self,
        login: framing.Login,
        connection: ClientConnection,
        told: Callable[[Proof | None, str], None],
    ) -> None:
        assert not connection.caller.user
        right = (login.user, login.password) == (USER, PASSWORD)
        self.told["logins" if right else "wrong logins"] += 1
        proof = Proof(login.user, b"salt") if right else None
        self._soon(lambda: told(proof, "" if right else "wrong user or password"))

    def answer(self, payload: bytes, caller: Caller, told: Callable[[bytes], None]) -> None:
        assert caller.user == USER, "a call without credentials was let in"
        self.told["answered"] += 1
        answer = self._gateway.answer(payload, caller)
        self._soon(lambda: told(answer))

    def refuse(self, payload: bytes, reason: str) -> bytes:
        self.told["refused"] += 1
        return self._gateway.refuse(payload, reason)


def mutated(dice: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.choice((0, 1, 1, 2, 4))):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(changed):
                changed[at] = dice.choice((0, 1, 2, 3, 5, 11, 12, 13, 15, 127, 128, 255))
            case 2:
                del changed[at : at + dice.randint(1, 8)]
            case 3:
                changed[at:at] = dice.randbytes(dice.randint(1, 8))
            case 4:
                changed[at:at] = dice.choice((*OPENINGS, *CALLS))
            case _:
                changed[at:at] = changed[: dice.randint(1, 16)]
    return bytes(changed)


def streams(dice: random.Random, count: int) -> Iterator[tuple[bytes, bytes]]:
    """What a client sends first, and what it sends then."""
    for _ in range(count):
        opening = dice.choice(OPENINGS)
        if dice.random() < 0.6:
            opening = mutated(dice, opening)
        calls = b"".join(
            framed(call) if dice.random() < 0.7 else call
            for call in dice.choices(CALLS, k=dice.randint(0, 3))
        )
        yield opening, mutated(dice, calls)


async def _fuzz(count: int, seed: int) -> Counter[str]:
    dice = random.Random(seed)
    house = _House(dice)
    for number, (opening, calls) in enumerate(streams(dice, count)):
        connection = ClientConnection(cast(Any, house), "10.0.0.1:1")
        transport = _Transport(connection, dice)
        connection.connection_made(cast(Any, transport))
        for content in (opening, calls):
            pieces = dice.choice((1, 7, 10_000))
            for at in range(0, len(content), pieces):
                if not transport.closed:
                    connection.data_received(content[at : at + pieces])
            while house.later and not transport.closed:
                house.later.pop()()
        if not transport.closed:
            connection.eof_received()
        connection.connection_lost(None)
        while house.later:
            house.later.pop()()
        assert house.bytes == 0, "a connection that ended still counts"
        house.told["let in" if connection.caller.user else "kept out"] += 1
        if number % 1000 == 0:
            await asyncio.sleep(0)
    waiting = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert not [one for one in waiting if not one.cancelled()], "a deadline was left"
    return house.told


def fuzz(count: int, seed: int = 1) -> Counter[str]:
    return asyncio.run(_fuzz(count, seed))


@pytest.mark.more
@pytest.mark.parametrize("seed", range(3))
def test_no_call_is_answered_with_an_error_that_is_not_ours(tmp_path: Path, seed: int) -> None:
    """Calls of every name, each of whose values may be one that nobody expects."""
    dice = random.Random(seed)
    world = World()
    world.create(partitioned=True, location=str(tmp_path / "t"))
    link: Any = LocalLink(world)
    gateway = Gateway(Metastore(link, str(tmp_path)), 0)
    with no_raw_errors():
        for _ in range(1500):
            gateway.answer(any_call(dice), Caller("10.0.0.7:1", USER))


def test_P34_mutated_negotiations_let_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    told = fuzz(3_000)
    assert told["let in"] > 100 and told["kept out"] > 1_000, told
    assert told["answered"] > 50 and told["refused"] > 10 and told["wrong logins"] > 100, told


@pytest.mark.slow
def test_P34_100000_mutated_negotiations_let_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    assert fuzz(100_000, seed=2)["answered"] > 1_000


def _main() -> None:
    import logging
    import tracemalloc

    logging.disable(logging.CRITICAL)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    fuzz(1_000)
    tracemalloc.start()
    before, began = tracemalloc.get_traced_memory()[0], time.process_time()
    told = fuzz(count, seed=3)
    grown = tracemalloc.get_traced_memory()[0] - before
    print(f"{count:,} connections in {time.process_time() - began:.0f} s of CPU: {dict(told)}")
    print(f"memory grew by {grown / 1024:.0f} KiB")


if __name__ == "__main__":
    _main()
