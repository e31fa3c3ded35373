"""docs/internal/published-tests.md says what the cases say."""

from __future__ import annotations

from tests.published.page import PAGE, render


def test_the_page_is_that_of_the_cases() -> None:
    assert PAGE.read_text() == render(), "run python -m tests.published.page"
