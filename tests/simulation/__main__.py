"""`python -m tests.simulation SEED STEPS`: one run; without a seed, many until a claim breaks."""

from __future__ import annotations

import logging
import sys
import time

from tests.simulation.simulator import Failure, Simulation

_STEPS = 1500


def main(arguments: list[str]) -> int:
    seed, steps = (int(argument) for argument in (*arguments, "0", "0")[:2])
    # Failing appends are part of every run.
    logging.getLogger("acid_platform.metastore").setLevel(logging.CRITICAL)
    started, done = time.monotonic(), 0
    try:
        if seed:
            simulation = Simulation(seed)
            simulation.run(steps or _STEPS)
            done = simulation.steps
        else:
            wanted = steps or 100_000
            while done < wanted:
                seed += 1
                Simulation(seed).run(_STEPS)
                done += _STEPS
    except Failure as failure:
        print(failure)
        return 1
    print(
        f"{done} steps, last seed {seed}: nothing broke"
        f" ({done / (time.monotonic() - started):.0f} steps/s)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
