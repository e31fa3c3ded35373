"""The system's package manager, used only if it asks no question."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class SetupFailed(Exception):
    """Set-up can't continue; the text is one line that says what is missing and what to run."""


@dataclass(frozen=True, slots=True)
class PackageManager:
    """How packages are installed here. `prefix` is None if that would need a password."""

    name: str
    prefix: tuple[str, ...] | None


def package_manager(env: Mapping[str, str]) -> PackageManager | None:
    """apt-get or Homebrew, whichever is on `env`'s PATH; None if neither is.

    apt-get may run without a question as root or with passwordless sudo, Homebrew as any user but
    root (it refuses root).
    """
    path = env.get("PATH", "")
    if shutil.which("brew", path=path):
        return PackageManager("brew", None if os.geteuid() == 0 else ())
    if shutil.which("apt-get", path=path):
        if os.geteuid() == 0:
            return PackageManager("apt-get", ())
        sudo = shutil.which("sudo", path=path)
        if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True).returncode == 0:
            return PackageManager("apt-get", (sudo, "-n"))
        return PackageManager("apt-get", None)
    return None


def install_one_of(manager: PackageManager, packages: Sequence[str]) -> str | None:
    """Installs the first of `packages` that the manager has; returns its name, or None.

    Distributions carry different Java versions, so the next name is tried after a failure.
    """
    if manager.prefix is None:
        return None
    if manager.name == "brew":
        env, command = {"NONINTERACTIVE": "1"}, ["brew", "install"]
    else:
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        command = [*manager.prefix, "env", *(f"{k}={v}" for k, v in env.items()), "apt-get"]
        _run([*command, "update", "-qq"], env)
        command += [
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "-o",
            "DPkg::Lock::Timeout=120",
        ]
    return next((package for package in packages if _run([*command, package], env)), None)


def _run(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Runs a command with its output on stderr: people see it, and no script parses it."""
    done = subprocess.run(
        command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=sys.stderr
    )
    return done.returncode == 0
