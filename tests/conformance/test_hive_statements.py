"""Every statement of docs/internal/hive-statements.md answers what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conformance.hive_statements import PAGE, Section, answer_of, sections
from tests.conftest import few_then_more, temporary_warehouse

pytestmark = pytest.mark.spark

SECTIONS = tuple(sections(PAGE.read_text()))


def test_the_page_has_its_statements() -> None:
    assert sum(len(section.steps) for section in SECTIONS) >= 230


@pytest.mark.parametrize(
    "section", few_then_more(SECTIONS, 2), ids=[section.title for section in SECTIONS]
)
def test_answers(section: Section, tmp_path: Path, spark: SparkSession) -> None:
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        answers = [(step.statement, answer_of(warehouse, step)) for step in section.steps]
    assert answers == [(step.statement, step.answer) for step in section.steps]
