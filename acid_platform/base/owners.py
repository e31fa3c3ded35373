"""Whose files this process obeys: those of its own user (P68).

Settings and code are found in directories around the current one, and some settings name programs.
In a directory of another user of the machine they would run that user's programs, so such a place
is refused, as git refuses it. What somebody names, by an option or in the environment, is that
person's choice; this is about files that are found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from acid_platform.errors import OwnedByOthers

SAFE = "ACID_SAFE_DIRECTORY"
"""Directories of others that the user trusts, separated as in PATH; `*` trusts all."""


def require_own(directory: Path, *files: str, environment: Mapping[str, str] | None = None) -> None:
    """Raises OwnedByOthers unless the directory and these files in it, where they exist, are the
    user's, or root's. Links have to be, too (P68)."""
    environment = os.environ if environment is None else environment
    trusted = environment.get(SAFE, "").split(os.pathsep)
    if "*" in trusted or any(_same(directory, one) for one in trusted if one):
        return
    for path in (directory, *(directory / file for file in files)):
        for found in (path.lstat, path.stat):
            try:
                owner = found().st_uid
            except (FileNotFoundError, NotADirectoryError):
                continue
            if owner not in _own(environment):
                raise OwnedByOthers(
                    f"{path} belongs to another user, with the id {owner}: what is there would"
                    f" choose what runs as you. Work elsewhere, or if you trust that user, set"
                    f" {SAFE}={directory} in the environment"
                )


def _own(environment: Mapping[str, str]) -> set[int]:
    """The ids of the user and of root; under `sudo` also of whoever called it, as git has it."""
    own = {os.geteuid(), 0}
    caller = environment.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdigit():
        own.add(int(caller))
    return own


def _same(directory: Path, trusted: str) -> bool:
    return os.path.realpath(directory) == os.path.realpath(trusted)
