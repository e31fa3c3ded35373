"""Replays the corpus of every door: nothing but the errors that it names, within its limits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.fuzz.doors import CORPUS, DOORS, LONGEST_SECONDS, leave


@pytest.fixture(scope="module", autouse=True)
def room() -> Iterator[None]:
    yield
    leave()


@pytest.mark.parametrize("name", sorted(DOORS))
def test_what_comes_through_a_door(name: str) -> None:
    door, inputs = DOORS[name], sorted((CORPUS / name).iterdir())
    assert len(inputs) > 1
    accepted = 0
    for path in inputs:
        data = path.read_bytes()
        assert len(data) <= door.longest, path
        began = time.monotonic()
        try:
            door.enter(data)
            accepted += 1
        except door.refused as refused:
            assert str(refused), path
        assert time.monotonic() - began < LONGEST_SECONDS, path
    assert accepted, "nothing of the corpus gets through"


def test_every_corpus_has_its_door() -> None:
    assert {path.name for path in CORPUS.iterdir()} == {*DOORS}
