"""docs/internal/hive-statements.md: its statements, and what each answers here.

`python -m tests.conformance.hive_statements` writes the answers of this version into the page.
"""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acid_platform import Warehouse
from acid_platform.errors import AcidError
from acid_platform.sql.answers import hive_text, rows_of
from tests.conftest import temporary_warehouse

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internal" / "hive-statements.md"
ANSWER = "-- "
REFUSED = "refused: "
_ORDERED = re.compile(r"(?!SELECT\b)|.*\b(?:ORDER|SORT|CLUSTER) BY\b", re.DOTALL)
"""Statements whose rows have an order."""
_TIME = re.compile(r"\b\d{13}\b|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d UTC \d{4}")
_PROCESS = re.compile(rf"\b{re.escape(socket.gethostname())} \| [\d.]+")


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of the page, with the lines of its answer."""

    statement: str
    answer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the page, and the statements below it; they share a warehouse."""

    title: str
    steps: tuple[Step, ...]


def sections(page: str) -> Iterator[Section]:
    for part in page.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        block = body.partition("```sql\n")[2].partition("```")[0]
        yield Section(title, tuple(_steps(block)))


def _steps(block: str) -> Iterator[Step]:
    statement: list[str] = []
    answer: list[str] = []
    for line in block.splitlines():
        if line.startswith(ANSWER.strip()):
            answer.append(line)
            continue
        if answer or (statement and statement[-1].endswith(";")):
            yield Step("\n".join(statement), tuple(answer))
            statement, answer = [], []
        statement.append(line)
    yield Step("\n".join(statement), tuple(answer))


def answer_of(warehouse: Warehouse, step: Step) -> tuple[str, ...]:
    """The answer as the page writes it: with words for what differs each time."""
    statement = step.statement.replace("'/warehouse/", f"'{warehouse.metastore.places.root}/")
    try:
        [(_, outcome)] = warehouse.session.steps(statement)
        result = rows_of(outcome)
    except AcidError as error:
        lines = [REFUSED + str(error)]
    else:
        rows = () if result is None else result.rows
        lines = [" | ".join(str(hive_text("", value)) for value in row.values()) for row in rows]
        if result is None:
            lines = str(outcome).splitlines()
        elif not _ORDERED.match(step.statement):
            lines.sort()
    return tuple(f"{ANSWER}{_lasting(line, warehouse)}".rstrip() for line in lines)


def _lasting(line: str, warehouse: Warehouse) -> str:
    """The line without the directory, the times and the process of this run."""
    line = line.replace(str(warehouse.metastore.places.root), "/warehouse")
    return _PROCESS.sub("HOST | PROCESS", _TIME.sub("TIME", line))


def main() -> None:
    page = PAGE.read_text()
    head = page.split("\n## ")[0].rstrip() + "\n"
    text = [head]
    for section in sections(page):
        with (
            tempfile.TemporaryDirectory() as directory,
            temporary_warehouse(Path(directory) / "wh") as warehouse,
        ):
            text.append(f"\n## {section.title}\n\n```sql")
            for step in section.steps:
                text.extend((step.statement, *answer_of(warehouse, step)))
            text.append("```")
    PAGE.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
