"""A damaged byte in a data file gives an error that names the file, or rows, but never a crash."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from acid_platform import AcidError
from tests.scan.test_bad_files import D1, D2, good


def damaged(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    at = chance.randrange(len(changed))
    match chance.choice(["flip", "flip", "cut", "zeros", "tail"]):
        case "flip":
            changed[at] ^= 1 << chance.randrange(8)
        case "cut":
            del changed[at:]
        case "zeros":
            changed[at : at + 20] = bytes(len(changed[at : at + 20]))
        case "tail":
            changed[-1 - at % 400] ^= chance.randrange(1, 256)
    return bytes(changed)


@pytest.mark.parametrize("what", ["count", "read"])
def test_P26_damage_anywhere_is_an_error_of_the_platform_or_none(tmp_path: Path, what: str) -> None:
    """`count` reads footers only, so that it notices less; pyorc's C++ errors are RuntimeErrors."""
    table = good(tmp_path)
    run: Callable[[], object] = getattr(table, what)
    chance = random.Random(15)
    errors = []
    for _ in range(150):
        path = chance.choice([D1, D2])
        content = (tmp_path / path).read_bytes()
        (tmp_path / path).write_bytes(damaged(content, chance))
        try:
            run()
        except AcidError as error:
            errors.append((path, str(error)))
        (tmp_path / path).write_bytes(content)
    assert len(errors) > (40 if what == "count" else 50)
    assert all(path in text for path, text in errors)
