"""docs/hive-statements.md: its statements, and what each answers here.

`python -m tests.docs.hive_statements` writes the answers of this version into the page.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from acid_platform import Warehouse
from acid_platform.errors import AcidError
from acid_platform.sql.present import hive_text, rows_of
from tests.conftest import temporary_warehouse

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hive-statements.md"
ANSWER = "-- "
REFUSED = "refused: "


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
    """The answer as the page writes it; a refusal is cut to what the page says of it."""
    try:
        [(_, outcome)] = warehouse.session.steps(step.statement)
        result = rows_of(outcome)
    except AcidError as error:
        message = f"{ANSWER}{REFUSED}{str(error).splitlines()[0]}"
        beginning = step.answer[0] if len(step.answer) == 1 else ""
        says_so = beginning.startswith(ANSWER + REFUSED) and message.startswith(beginning)
        return (beginning if says_so else message,)
    if result is None:
        return (f"{ANSWER}{outcome}",)
    rows = [" | ".join(str(hive_text("", value)) for value in row.values()) for row in result.rows]
    return tuple(
        f"{ANSWER}{row}" for row in (rows if "ORDER BY" in step.statement else sorted(rows))
    )


def main() -> None:
    page = PAGE.read_text()
    head = page.split("\n## ")[0]
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
