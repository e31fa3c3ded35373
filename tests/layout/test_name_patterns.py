"""Patterns of names, as SHOW … LIKE and the gateway's calls have them."""

from __future__ import annotations

import random
import re
import time

import pytest

from acid_platform import InvalidDefinition
from acid_platform.base.arguments import LONGEST, MOST_STARRED, dotted_pattern, name_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "wanted"),
    [
        (None, "any", True),
        ("", "any", True),
        ("f*", "flights", True),
        ("F%", "flights", True),
        ("a|f*", "flights", True),
        (" a | flights ", "flights", True),
        ("f", "flights", False),
        ("x*", "flights", False),
        ("a.c", "abc", False),
        ("a?c*", "abc", False),
        ("a?c", "a?c", False),
        ("ab*ba", "aba", False),
        ("**", "", True),
        ("*|", "x", True),
    ],
)
def test_P73_patterns_of_names(pattern: str | None, name: str, wanted: bool) -> None:
    assert name_pattern(pattern).matches(name) is wanted


@pytest.mark.more
def test_P73_patterns_match_what_the_regular_expression_of_hive_matches() -> None:
    dice = random.Random(73)
    for _ in range(20_000):
        pattern = "".join(dice.choice("abB*%|_") for _ in range(dice.randint(0, 9)))
        name = "".join(dice.choice("abAb_") for _ in range(dice.randint(0, 7)))
        regex = "|".join(f"(?:{re.sub('[*%]', '.*', one)})" for one in (pattern or "*").split("|"))
        wanted = bool(re.fullmatch(regex, name, re.IGNORECASE))
        assert name_pattern(pattern).matches(name) is wanted, (pattern, name)
        dotted = "".join(dice.choice(("a", "b", ".", ".*", "_")) for _ in range(dice.randint(0, 9)))
        wanted = bool(re.fullmatch(dotted, name, re.IGNORECASE))
        assert dotted_pattern(dotted).matches(name) is wanted, (dotted, name)


@pytest.mark.parametrize("part", ["*", "%", "a*", "*a", "a|", "|*a", "*ac*ab|"])
def test_P73_no_pattern_takes_long(part: str) -> None:
    """Of each length up to the longest, against names that almost match; or it is refused."""
    names = ["a" * 128 + "b", "ab" * 64]
    for length in (120, 1000, LONGEST, LONGEST + 1, 1_000_000):
        began = time.process_time()
        try:
            pattern = name_pattern((part * length)[: length - 1] + "!")
            assert not any(pattern.matches(name) for name in names * 100)
        except InvalidDefinition as error:
            assert length > MOST_STARRED and ("at most" in str(error))
        assert time.process_time() - began < 2
