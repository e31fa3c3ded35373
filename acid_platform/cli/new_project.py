"""`acid new`: a project of a few files that depends on the platform."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

import click

from acid_platform import __version__
from acid_platform.cli.console import CommandSession, LocalPath, command, main
from acid_platform.errors import InvalidDefinition, InvalidExpression

_FILES = Path(__file__).parent / "project_files"
"""The files of a project, each with `.in` behind its name; the directory `package` gets the name of
the project."""
_FOLDERS = ("tests", "var", "dagster_home")
"""The folders of a project beside its package."""


@command(main)
@click.argument("path", type=LocalPath(path_type=Path, file_okay=False))
def new(session: CommandSession, path: Path) -> None:
    """Write a project at PATH: a table from a CSV file with its test, for Dagster's dg.

    The last part of PATH is the name of its package and of its database. `make setup dev` there
    starts it, and `dg scaffold defs` adds to it.
    """
    name = path.name
    if why := _unusable(name):
        raise InvalidDefinition(
            f"{name!r} is no name for a package: {why}; end PATH in another, such as projects/shop"
        )
    try:
        files = _write(path, name)
    except OSError as error:
        raise InvalidDefinition(f"{path} can't be written: {error}; name another place") from error
    session.say(
        {"path": str(path), "files": files},
        f"{path}: {files} files; go there, then: make setup, make test, make dev",
    )


def _write(path: Path, name: str) -> int:
    """Writes the files and returns their number. Raises InvalidDefinition, OSError."""
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
    return len(sources)


def _platform() -> str:
    """What pip installs to have the platform: the clone that runs, or the package."""
    clone = Path(__file__).parents[2]
    return str(clone) if (clone / "pyproject.toml").exists() else "acid-platform"


def _unusable(name: str) -> str | None:
    """Why a project can't have a package and a database of this name."""
    from importlib.metadata import packages_distributions

    from acid_platform.sql.parse import parse

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return "it needs lower-case letters, digits and _"
    if keyword.iskeyword(name) or name in sys.stdlib_module_names:
        return "it is Python's"
    if name in _FOLDERS:
        return "the project has a folder of this name for something else"
    if name in packages_distributions():
        return "an installed package has it"
    try:
        parse(f"SELECT * FROM {name}.orders")
    except InvalidExpression:
        return "it is a word of SQL"
    return None
