"""Finding the settings and the warehouse of the project in which `acid` is called.

`make` passes both to what it starts. Here they are found without it, so that `acid show tables`
shows the same tables as `make dev`.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from acid_platform.base.location import holds_log, is_path
from acid_platform.base.paths import user_path
from acid_platform.base.private_places import require_own
from acid_platform.errors import MetastoreUnavailable
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


def nearby(warehouse: str) -> list[str]:
    """Warehouses near a path that has none, such as the demo's."""
    above = Path(warehouse).parent
    metastores = sorted(above.glob("*/_metastore")) + sorted(above.glob("*/*/_metastore"))
    warehouses = []
    for metastore in metastores:
        with suppress(MetastoreUnavailable):  # somebody else's
            warehouses += [os.path.relpath(metastore.parent)] if holds_log(metastore) else []
    return warehouses
