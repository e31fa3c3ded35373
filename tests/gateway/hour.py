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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from acid_platform.gateway.framing import Limits
from acid_platform.gateway.gateway import CALLS
from tests.gateway.calls import any_call, named, sample
from tests.gateway.real_servers import Committers, RealServers, Seen, framed_answer
from tests.gateway.test_growth import Grown, places_of
from tests.gateway.test_protocol import message

SLOW = 2.0
SECRET = b"secret_table"
"""Part of a name that eve may not learn."""


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


def generate(calls: Connection, seed: int) -> None:
    """Sends calls without an end, from a process whose work delays no client that commits."""
    os.nice(19)
    dice = random.Random(seed)
    while True:
        name, payload = generated(dice)
        if len(payload) > Limits().bytes:
            payload = payload[: dice.randrange(1, 1 << 20)]
        calls.send((name, payload))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4, help="others, who commit meanwhile")
    chosen = parser.parse_args()
    calls, other_end = multiprocessing.Pipe(duplex=False)
    generator = multiprocessing.get_context("spawn").Process(
        target=generate, args=(other_end, chosen.seed), daemon=True
    )
    counts: Counter[str] = Counter()
    slow: list[dict[str, Any]] = []
    leaked: list[str] = []
    memory: list[dict[str, int]] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        RealServers(Path(directory)) as servers,
        Committers(servers, chosen.clients).running() as committers,
    ):
        time.sleep(5)
        quiet = committers.phase(min(60.0, 15 * chosen.minutes))
        generator.start()
        committers.seen = meanwhile = Seen()
        end, told, raw = time.monotonic() + 60 * chosen.minutes, 0.0, servers.logged_in("eve")
        while time.monotonic() < end:
            name, payload = calls.recv()
            began = time.monotonic()
            try:
                answer = framed_answer(raw, payload)
            except (OSError, EOFError):  # no call, or above a limit
                answer = b""
                raw.close()
                counts["ended"] += 1
            took = time.monotonic() - began
            if not answer:
                raw = servers.logged_in("eve")
            counts["calls"] += 1
            counts["bytes"] += len(payload)
            if took > SLOW:
                slow.append({"call": name, "bytes": len(payload), "seconds": round(took, 1)})
            if SECRET in answer and SECRET not in payload:
                leaked.append(name)
            if time.monotonic() - told > 60:
                told = time.monotonic()
                memory.append(servers.memory())
                line = {**counts, "slow": len(slow), "leaked": len(leaked), **memory[-1]}
                line |= {"p99": round(meanwhile.p99(), 4)}
                print(json.dumps(line), flush=True)
        generator.terminate()
        alive = [one.poll() is None for one in (servers.gateway, servers.metastore)]
        memory.append(servers.memory())
        held_up = meanwhile.p99() > max(0.1, 3 * quiet.p99())
        report = {
            **counts,
            "slow": slow,
            "leaked": leaked,
            "memory": [memory[0], memory[len(memory) // 2], memory[-1]],
            "alive": alive,
            "others_before": quiet.report(),
            "others_meanwhile": meanwhile.report(),
            "others_held_up": held_up,
        }
        print(json.dumps(report, indent=1))
    return int(bool(slow or leaked or held_up or meanwhile.failures or not all(alive)))


if __name__ == "__main__":
    sys.exit(main())
