"""A project: its settings and its warehouse, for `acid` called in it, and making one by `acid new`.

`make` passes both to what it starts. Here they are found without it, so that `acid show tables`
shows the same tables as `make dev`.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from acid_platform.base.local_files import require_own
from acid_platform.base.location import is_path
from acid_platform.base.paths import user_path
from acid_platform.cli.console import CommandSession, LocalPath, command, main
from acid_platform.errors import InvalidDefinition, InvalidExpression
from acid_platform.metastore.endpoint import FILES, SYSTEM

MARK = "workspace.yaml"
"""The file that marks a project's directory: it names the definitions that Dagster loads."""

_LINE = re.compile(r"\s*(?:export\s+)?(ACID_[A-Z0-9_]+|JAVA_HOME)\s*=\s*(.*)")
_QUOTED = re.compile(r"""(["'])(.*)\1\s*(?:#.*)?""")
_PATHS = ("ACID_WAREHOUSE", "ACID_METASTORE", *FILES)


def enter_project(start: Path, environment: MutableMapping[str, str]) -> None:
    """Adds the project's settings to the environment, which wins.

    They are `.env`, as make reads it, and ACID_WAREHOUSE=var/warehouse. Relative paths start at the
    project. Outside of a project nothing is added. Raises OwnedByOthers for a project of another
    user (P68).
    """
    root = project_root(start)
    if root is None:
        return
    require_own(root, MARK, ".env", environment=environment)
    settings = read_settings(root / ".env")
    home = environment.get("ACID_HOME") or settings.get("ACID_HOME") or "var"
    settings.setdefault("ACID_WAREHOUSE", f"{home}/warehouse")
    for name, value in settings.items():
        path = name in _PATHS and is_path(value) and value != SYSTEM
        environment.setdefault(name, user_path(value, root) if path else value)


def project_root(start: Path) -> Path | None:
    """The nearest directory at or above `start` that is a project."""
    return next((path for path in (start, *start.parents) if (path / MARK).is_file()), None)


def read_settings(file: Path) -> dict[str, str]:
    """The platform's NAME=value lines of an `.env` file; none if the file does not exist.

    A path without a value is not set. Bytes that are not UTF-8 stay as they are, as in a path.
    """
    if not file.is_file():
        return {}
    lines = file.read_text(errors="surrogateescape").splitlines()
    values = {match[1]: _value(match[2]) for match in map(_LINE.fullmatch, lines) if match}
    paths = (*_PATHS, "ACID_HOME")
    return {name: value for name, value in values.items() if value or name not in paths}


def _value(text: str) -> str:
    """What is written after `=`, without quotes or a comment."""
    quoted = _QUOTED.fullmatch(text)
    return quoted[2] if quoted else re.sub(r"\s+#.*", "", text).rstrip()


_FILES = Path(__file__).parent / "project_files"
"""The files of a project, each with `.in` behind its name; the directory `package` gets the name of
the project."""
_FOLDERS = ("tests", "var", "dagster_home")
"""The folders of a project beside its package."""


@command(main)
@click.argument("path", type=LocalPath(path_type=Path, file_okay=False))
@click.option(
    "--platform",
    metavar="WHERE",
    help="A clone, a wheel, or a version such as acid-platform==0.1.0; default: this one's source.",
)
def new(session: CommandSession, path: Path, platform: str | None) -> None:
    """Write a project at PATH: a table from a CSV file with its test, for Dagster's dg.

    The last part of PATH is the name of its package and of its database. `make setup dev` there
    starts it, and `dg scaffold defs` adds to it. Its pyproject.toml names where the platform comes
    from: a wheel with its hash, or a clone, whose commit the Makefile requires.
    """
    name = path.name
    if why := _unusable(name):
        raise InvalidDefinition(
            f"{name!r} is no name for a package: {why}; end PATH in another, such as projects/shop"
        )
    requirement, clone = _requirement(platform)
    commit = _clean_commit(clone) if clone else ""
    values = {"@NAME@": name, "@PLATFORM@": requirement, "@COMMIT@": commit}
    try:
        files = _write(path, {**values, "@CLONE@": str(clone or "")})
    except OSError as error:
        raise InvalidDefinition(f"{path} can't be written: {error}; name another place") from error
    session.say(
        {"path": str(path), "files": files, "platform": requirement, "commit": commit},
        f"{path}: {files} files, with {requirement}{f', commit {commit}' * bool(commit)}\n"
        "go there, then: make setup, make test, make dev",
    )


def _write(path: Path, values: Mapping[str, str]) -> int:
    """Writes the files and returns their number. Raises InvalidDefinition, OSError."""
    if path.exists() and any(path.iterdir()):
        raise InvalidDefinition(f"{path} is not empty: name another directory")
    sources = sorted(_FILES.rglob("*.in"))
    for source in sources:
        text = source.read_text("utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        first, *rest = source.relative_to(_FILES).with_suffix("").parts
        file = path.joinpath(values["@NAME@"] if first == "package" else first, *rest)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return len(sources)


# --- where the platform comes from ---------------------------------------------------------------


def _requirement(named: str | None) -> tuple[str, Path | None]:
    """What pip installs to have the platform with Dagster, and the clone if it is one. Nobody has
    its name in an index for us, so a version alone is only taken from somebody who says it.

    Raises InvalidDefinition.
    """
    if named and re.fullmatch(r"acid-platform==[\w.+!-]+", named):
        return named.replace("==", "[dagster]=="), None
    url, clone = _source(named)
    return f"acid-platform[dagster] @ {url}", clone


def _source(named: str | None) -> tuple[str, Path | None]:
    """The URL of a wheel or clone; by default of the one that runs. Raises InvalidDefinition."""
    clone = Path(__file__).parents[2]
    if named:
        source = Path(user_path(named))
    elif (clone / "pyproject.toml").exists():
        source = clone
    else:
        from importlib.metadata import distribution

        recorded = distribution("acid-platform").read_text("direct_url.json")
        origin: dict[str, Any] = json.loads(recorded or '{"url": "/"}')
        if vcs := origin.get("vcs_info"):
            return f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}", None
        source = Path(unquote(origin["url"].removeprefix("file://")))
    if source.suffix == ".whl" and source.is_file():
        return f"{source.as_uri()}#sha256={sha256(source.read_bytes()).hexdigest()}", None
    if (source / "acid_platform").is_dir() and (source / "pyproject.toml").is_file():
        return source.as_uri(), source
    raise InvalidDefinition(
        (f"{named} is no clone and no wheel of the platform" if named else _UNKNOWN)
        + "; name one, such as: acid new PATH --platform dist/acid_platform-0.1.0-py3-none-any.whl"
    )


_UNKNOWN = "it is not recorded where this platform was installed from, or that place is gone"


def _clean_commit(clone: Path) -> str:
    """The commit that is checked out; empty without one, or if files differ from it."""
    git = ["git", "-C", str(clone)]
    try:
        changed = subprocess.run(
            [*git, "status", "--porcelain"], capture_output=True, text=True, check=True
        )
        head = subprocess.run(
            [*git, "rev-parse", "--show-toplevel", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    top, commit = head.stdout.split("\n")[:2]
    own = Path(top).resolve() == clone.resolve()
    return commit if own and not changed.stdout else ""


def _unusable(name: str) -> str | None:
    """Why a project can't have a package and a database of this name."""
    from importlib.metadata import packages_distributions
    from importlib.util import find_spec

    from acid_platform.sql.parse import parse

    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return "it needs lower-case letters, digits and _"
    if keyword.iskeyword(name) or name in sys.stdlib_module_names:
        return "it is Python's"
    if name in _FOLDERS:
        return "the project has a folder of this name for something else"
    found = find_spec(name)  # also of a clone, as this platform may be; a mere folder has no origin
    if name in packages_distributions() or (found is not None and found.origin):
        return "an installed package has it"
    try:
        parse(f"SELECT * FROM {name}.orders")
    except InvalidExpression:
        return "it is a word of SQL"
    return None
