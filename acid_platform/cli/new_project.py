"""`acid new`: a project of a few files that depends on the platform."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from acid_platform import __version__
from acid_platform.cli.console import CommandSession, command, main
from acid_platform.errors import InvalidDefinition

_FILES = Path(__file__).parent / "project_files"
"""The files of a project, each with `.in` behind its name; the directory `package` gets the name of
the project."""


@command(main)
@click.argument("path", type=click.Path(path_type=Path, file_okay=False))
def new(session: CommandSession, path: Path) -> None:
    """Write a project at PATH: a table from a CSV file with its test, for Dagster's dg.

    The last part of PATH is the name of its package and of its database. `make setup dev` there
    starts it, and `dg scaffold defs` adds to it.
    """
    name = path.absolute().name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name == "tests":
        raise InvalidDefinition(
            f"{name!r} is no name for a package: end PATH in letters, digits and _, such as"
            " projects/shop"
        )
    if path.exists() and any(path.iterdir()):
        raise InvalidDefinition(f"{path} is not empty: name another directory")
    values = {"@NAME@": name, "@VERSION@": __version__, "@PLATFORM@": _platform()}
    sources = sorted(_FILES.rglob("*.in"))
    for source in sources:
        text = source.read_text("utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        first, *rest = source.relative_to(_FILES).with_suffix("").parts
        file = path.joinpath(name if first == "package" else first, *rest)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    session.say(
        {"path": str(path), "files": len(sources)},
        f"{path}: {len(sources)} files; go there, then: make setup, make test, make dev",
    )


def _platform() -> str:
    """What pip installs to have the platform: the clone that runs, or the package."""
    clone = Path(__file__).parents[2]
    return str(clone) if (clone / "pyproject.toml").exists() else "acid-platform"
