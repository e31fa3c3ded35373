"""llms.txt: the pages of `docs/` for programs that read them, each with its first
sentence and its sections.

`python -m scripts.print_tables` writes it, from `mkdocs.yml` and the pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
_HEAD = """\
# Hive-ACID data platform

> {about}

Commands, code and what not to do: [AGENTS.md](AGENTS.md). What works and what does not:
[README.md](README.md). Printed by `python -m scripts.print_tables` from `mkdocs.yml` and the pages;
a test fails when it is older than these.
"""


def render() -> str:
    """The text of llms.txt."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    sections = {"Pages": [one for one in nav if isinstance(next(iter(one.values())), str)]}
    for entry in nav:
        sections |= {title: part for title, part in entry.items() if not isinstance(part, str)}
    parts = [_HEAD.format(about=" ".join(first_sentences(ROOT / "docs" / "index.md", 3)))]
    for title, entries in sections.items():
        parts.append(f"## {title}\n\n" + "".join(_lines(entries)))
    return "\n".join(parts)


def _lines(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for title, page in entry.items():
            path = ROOT / "docs" / page
            headings = re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)
            about = [*first_sentences(path), *([f"({'; '.join(headings)})"] if headings else [])]
            yield f"- [{title}](docs/{page}): {' '.join(about).replace(': (', ' (')}\n"


def first_sentences(page: Path, count: int = 1) -> list[str]:
    """The first sentences of a page's introduction, without links; none if it has no prose."""
    introduction, _, _ = page.read_text().partition("\n## ")
    for paragraph in introduction.split("\n\n"):
        text = " ".join(paragraph.split())
        if text and not text.startswith(("#", "!", "|", "```", "Printed from the code")):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
            return re.split(r"(?<=\.) (?=[A-Z`])", plain)[:count]
    return []
