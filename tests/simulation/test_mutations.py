"""The simulator catches every deliberately broken rule, so its invariants are effective."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.mutations import MUTATIONS, Cell, Faulty
from tests.simulation.simulator import Failure, Simulation

SEEDS, STEPS = 60, 1500
"""At most 90,000 steps; nearly all are caught within the first few hundred."""


def caught(mutation: Faulty | Cell) -> tuple[int, Failure] | None:
    """The number of steps until the failure, and the failure; None if there is none."""
    done = 0
    with mutation.applied():
        for seed in range(mutation.seed, mutation.seed + SEEDS):
            simulation = None
            try:
                simulation = Simulation(seed)
                simulation.run(STEPS)
            except Failure as failure:
                assert simulation is not None
                return done + simulation.steps, failure
            done += STEPS
    return None


def breaking() -> list[Any]:
    """`make test` breaks four rules, `make test-all` each once, `make test-full` in every way."""
    seen: set[str] = set()
    cases = []
    for mutation in MUTATIONS:
        is_first = mutation.rule not in seen
        seen.add(mutation.rule)
        marks = [] if is_first else [pytest.mark.slow]
        if len(seen) > 4:
            marks.append(pytest.mark.more)
        cases.append(pytest.param(mutation, id=f"{mutation.rule}: {mutation.what}", marks=marks))
    return cases


@pytest.mark.parametrize("mutation", breaking())
def test_a_broken_rule_is_caught(mutation: Faulty | Cell) -> None:
    found = caught(mutation)
    assert found is not None, f"{mutation.rule} broken ({mutation.what}), and nobody noticed"


def test_each_way_of_breaking_a_rule_is_listed_once() -> None:
    assert len({(mutation.rule, mutation.what) for mutation in MUTATIONS}) == len(MUTATIONS)


def test_a_mutation_leaves_nothing_behind() -> None:
    for mutation in MUTATIONS[:3]:
        with mutation.applied():
            pass
    Simulation(1).run(300)
