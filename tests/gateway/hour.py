"""Generated calls of a user with a grant on one table, sized from one byte to the limit.

`python -m tests.gateway.hour --minutes 60 --seed 7` sends them to a gateway and, through it, to a
metastore, and prints a line of JSON each minute and at the end: calls of more than two seconds, the
memory of both processes, the times of others' commits before and meanwhile, and answers that tell
of what the user may not read. The exit code is 1 if there was any of that.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from acid_platform.gateway.framing import Limits
from acid_platform.gateway.gateway import CALLS
from tests.gateway.calls import any_call, named, sample
from tests.gateway.real_servers import Committers, RealServers, Seen, framed_answer, logged_in
from tests.gateway.test_growth import Grown, places_of
from tests.gateway.test_protocol import message

SLOW = 2.0
SECRET = b"secret_table"
"""Part of a name that eve may not learn."""


@dataclass
class Sent:
    """What the sender of calls has seen."""

    counts: Counter[str] = field(default_factory=Counter)
    slow: list[dict[str, Any]] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)


def generated(dice: random.Random) -> tuple[str, bytes]:
    """A call: of random values, of patterns, or with one part grown to a size up to the limit."""
    if dice.random() < 0.4:
        return "any", any_call(dice)
    name = dice.choice(sorted(name for name, row in CALLS.items() if row.answer))
    if dice.random() < 0.3:
        texts = [dice.choice(("shown", "own", "*", "", "hidden", "x" * 200)) for _ in range(3)]
        return name, message(name, *sample(name, named(*texts)).arguments)
    places = places_of(name)
    if not places:
        return name, message(name, *sample(name, named("shown", "own")).arguments)
    parts = int(10 ** dice.uniform(0, 5.7))
    call = Grown(dice.randrange(len(places)), parts, dice.choice((1, 2, 3, 6))).call(name)
    return name, message(name, *call.arguments)


def send(port: int, seed: int, minutes: float, told: Connection) -> None:
    """Sends calls to the gateway, and tells after each minute what it has seen since the first.

    Runs in a process of its own, whose work delays no client that commits.
    """
    os.nice(19)
    dice = random.Random(seed)
    sent, raw = Sent(), logged_in(port, "eve")
    end, next_time = time.monotonic() + 60 * minutes, time.monotonic() + 60
    while time.monotonic() < end:
        name, payload = generated(dice)
        if len(payload) > Limits().bytes:
            payload = payload[: dice.randrange(1, 1 << 20)]
        began = time.monotonic()
        try:
            answer = framed_answer(raw, payload)
        except (OSError, EOFError):  # no call, or above a limit
            answer = b""
            raw.close()
            sent.counts["ended"] += 1
        took = time.monotonic() - began
        if not answer:
            raw = logged_in(port, "eve")
        sent.counts["calls"] += 1
        sent.counts["bytes"] += len(payload)
        if took > SLOW:
            sent.slow.append({"call": name, "bytes": len(payload), "seconds": round(took, 1)})
        if SECRET in answer and SECRET not in payload:
            sent.leaked.append(name)
        if time.monotonic() > next_time:
            next_time += 60
            told.send(sent)
    told.send(sent)
    told.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4, help="others, who commit meanwhile")
    chosen = parser.parse_args()
    told, other_end = multiprocessing.Pipe(duplex=False)
    sent, memory = Sent(), []
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServers(Path(directory)) as servers,
        Committers(servers, chosen.clients).running() as committers,
    ):
        time.sleep(5)
        quiet = committers.phase(min(60.0, 15 * chosen.minutes))
        sender = multiprocessing.get_context("spawn").Process(
            target=send,
            args=(servers.gateway_port, chosen.seed, chosen.minutes, other_end),
            daemon=True,
        )
        sender.start()
        other_end.close()
        committers.seen = meanwhile = Seen()
        with suppress(EOFError):  # the sender has ended
            while True:
                sent = told.recv()
                memory.append(servers.memory())
                line = {"slow": len(sent.slow), "leaked": len(sent.leaked), **memory[-1]}
                line |= {"p99_ms": round(1000 * meanwhile.p99(), 1)}
                print(json.dumps({**sent.counts, **line}), flush=True)
        sender.join()
        alive = [process.poll() is None for process in (servers.gateway, servers.metastore)]
        held_up = meanwhile.p99() > 3 * quiet.p99()
        report = {
            **sent.counts,
            "slow": sent.slow,
            "leaked": sent.leaked,
            "memory": [memory[0], memory[len(memory) // 2], memory[-1]],
            "alive": alive,
            "others_before": quiet.report(),
            "others_meanwhile": meanwhile.report(),
            "others_held_up": held_up,
        }
        print(json.dumps(report, indent=1))
    ended_well = sender.exitcode == 0 and all(alive) and not meanwhile.failures
    return int(bool(sent.slow or sent.leaked or held_up or not ended_well))


if __name__ == "__main__":
    sys.exit(main())
