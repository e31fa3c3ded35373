"""Set-up in four steps: Python, virtual environment, locked packages, Java.

Called by scripts/bootstrap.sh through `make`. A finished set-up leaves a stamp in .venv; while the
stamp fits the lock, the next call returns at once and asks no package index. The stamp is written
last, so an interrupted set-up is taken up again where it stopped.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts import java, packages
from scripts.system import SetupFailed, install_one_of, package_manager

ROOT = Path(__file__).resolve().parent.parent
LINK = "acid_platform.pth"


@dataclass(frozen=True, slots=True)
class Venv:
    """The project's virtual environment and what set-up leaves in it."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return self.home / "setup.stamp"

    @property
    def java_env(self) -> Path:
        """A shell file that sets JAVA_HOME; the Makefile reads it before it starts Spark."""
        return self.home / "java.env"

    def ask(self, code: str) -> str | None:
        """What `code` prints in this environment; None if it does not run."""
        try:
            done = subprocess.run([str(self.python), "-c", code], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def version(self) -> str | None:
        """Such as 3.12; None if there is no working environment. Fast if it is the running one."""
        if Path(sys.prefix) == self.home:
            return own_version()
        return self.ask("import sys; print('%d.%d' % sys.version_info[:2])")

    def site_packages(self) -> Path | None:
        site = self.ask("import sysconfig; print(sysconfig.get_path('purelib'))")
        return Path(site) if site else None


def own_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@contextmanager
def step(number: int, title: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"[{number}/4] {title}", flush=True)
    yield
    took = time.monotonic() - began
    if took >= 1:
        print(f"      {took:.0f} s", flush=True)


def fingerprint(needed: str, root: Path) -> str:
    """What the stamp holds: other packages, or a moved directory, need a new set-up."""
    return hashlib.sha256(needed.encode() + b"\0" + os.fsencode(root)).hexdigest()


def has_java(venv: Venv) -> bool:
    """Whether the Java found last time is still there, and JAVA_HOME has not changed since."""
    try:
        home, asked = (line.partition("=")[2] for line in venv.java_env.read_text().splitlines())
    except (OSError, ValueError):
        return False
    executable = Path(*shlex.split(home), "bin", "java")
    return executable.exists() and asked == shlex.quote(os.environ.get("JAVA_HOME", ""))


def linked_root(venv: Venv) -> str | None:
    """The directory that this environment was set up for, if it got that far."""
    site = venv.site_packages()
    link = site / LINK if site else None
    return link.read_text().strip() if link and link.exists() else None


def make_venv(venv: Venv, named: bool) -> None:
    """Makes the environment unless a working one of the right Python is there.

    Raises SetupFailed where Debian's python3-venv is missing and can't be installed unasked.
    """
    wanted = own_version()
    there = venv.version()
    uv = packages.uv_on_path()
    installer = uv is not None or venv.ask("import pip") is not None
    here = linked_root(venv) in (None, str(ROOT))
    if there and installer and here and (there == wanted or not named):
        return
    # The running interpreter may belong to the environment that is removed here.
    base = Path(sys.executable).resolve() if sys.prefix != sys.base_prefix else sys.executable
    if (venv.home / "pyvenv.cfg").exists():
        shutil.rmtree(venv.home)
    elif venv.home.exists():
        raise SetupFailed(
            f"{venv.home} exists and is not a virtual environment: move it away, "
            "then call make again"
        )
    with_pip = importlib.util.find_spec("ensurepip") is not None
    if not with_pip and uv is None:
        install_ensurepip(wanted)
        with_pip = True
    command = [str(base), "-m", "venv", str(venv.home)]
    if not with_pip:
        command.append("--without-pip")
    if subprocess.run(command).returncode != 0:
        raise SetupFailed(f"{shlex.join(command)} failed, see above")


def install_ensurepip(version: str) -> None:
    """Debian and Ubuntu keep `ensurepip` in a package of its own. Raises SetupFailed."""
    packages = (f"python{version}-venv", "python3-venv")
    manager = package_manager(os.environ)
    if manager and manager.name == "apt-get" and install_one_of(manager, packages):
        return
    raise SetupFailed(
        f"{sys.executable} can't make virtual environments: run "
        f"`sudo apt-get install -y {packages[0]}`, then call make again"
    )


def link_project(venv: Venv) -> None:
    """Makes `import acid_platform` and `acid` work from anywhere, without a build.

    An editable install would fix the list of top-level packages; a path does not.
    """
    site = venv.site_packages()
    if site is None:
        raise SetupFailed(f"{venv.python} does not run: remove {venv.home}, then call make again")
    (site / LINK).write_text(f"{ROOT}\n")
    write_command(venv)


def write_command(venv: Venv) -> None:
    """Writes the command `acid`, unless it is up to date.

    PYTHONSAFEPATH keeps it, and the processes that it starts, from importing from the current
    directory. If the environment names no Java, it uses the one that set-up found.
    """
    java_env = shlex.quote(str(venv.java_env))
    text = (
        "#!/bin/sh\n"
        f'if [ -z "${{JAVA_HOME:-}}" ] && [ -f {java_env} ]; then\n'
        f"    . {java_env}\n"
        "    export JAVA_HOME\n"
        "fi\n"
        "export PYTHONSAFEPATH=1\n"
        f'exec {shlex.quote(str(venv.python))} -m acid_platform "$@"\n'
    )
    command = venv.home / "bin" / "acid"
    if command.is_file() and command.read_text() == text:
        return
    command.unlink(missing_ok=True)
    command.write_text(text)
    command.chmod(0o755)


def provide_java(venv: Venv) -> java.Java:
    """Finds or installs Java and writes it down. Raises SetupFailed."""
    found = java.find_or_install(os.environ, package_manager(os.environ))
    asked = os.environ.get("JAVA_HOME", "")
    venv.java_env.write_text(
        f"JAVA_HOME={shlex.quote(str(found.home))}\nJAVA_HOME_WAS={shlex.quote(asked)}\n"
    )
    return found


def set_up(venv: Venv, *, with_java: bool, named: bool) -> None:
    """Runs the steps that are not done yet; returns at once if all are. Raises SetupFailed."""
    began = time.monotonic()
    # A link leads to the environment of another directory; its stamp names that directory.
    extras = packages.chosen_extras(ROOT, os.environ)
    needed = packages.requirements(ROOT, extras)
    stamp = fingerprint(needed, venv.home.resolve().parent)
    version = venv.version()
    packages_done = (
        version is not None
        and (version == own_version() or not named)
        and venv.stamp.exists()
        and venv.stamp.read_text() == stamp
    )
    command = venv.home / "bin" / "acid"
    if packages_done and command.exists() and not venv.home.is_symlink():
        write_command(venv)  # an older version may have written another one
    if packages_done and (not with_java or has_java(venv)):
        return
    with step(1, f"Python {sys.version.split()[0]} ({sys.executable})"):
        pass
    if not packages_done:
        if venv.home.is_symlink():
            raise SetupFailed(
                f"{venv.home} links to {venv.home.resolve()}, whose packages are not those "
                "that this project needs: call make there, or remove the link"
            )
        venv.stamp.unlink(missing_ok=True)
        with step(2, "virtual environment in .venv"):
            make_venv(venv, named)
        count = sum(line[:1].isalnum() for line in needed.splitlines())
        title = f"up to {count} locked packages ({', '.join(extras)}), 1.4 GB"
        with step(3, f"{title}: about a minute the first time"):
            tool = packages.install(venv.python, needed)
            link_project(venv)
        print(f"      installed by {tool}", flush=True)
        venv.stamp.write_text(stamp)
    if with_java:
        with step(4, "Java for Spark"):
            found = provide_java(venv)
        print(f"      Java {found.version} in {found.home} (from {found.source})")
    print(f"Set up in {time.monotonic() - began:.0f} s.", flush=True)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Of two `make` calls at a time, the second waits for the set-up of the first."""
    directory = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another set-up of this directory is running: waiting", flush=True)
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def main() -> int:
    parser = argparse.ArgumentParser(prog="setup", description=__doc__)
    parser.add_argument(
        "--no-java", action="store_true", help="for the linters, which need no Java"
    )
    parser.add_argument(
        "--python-was-named", action="store_true", help="remake .venv if it has another Python"
    )
    options = parser.parse_args()
    try:
        with one_at_a_time():
            set_up(
                Venv(ROOT / ".venv"), with_java=not options.no_java, named=options.python_was_named
            )
    except SetupFailed as failure:
        print(f"setup: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsetup: interrupted; the next make continues from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
