"""The packages of the virtual environment: which of the lock it gets, and who installs them.

`requirements.lock` pins every package of the project and of all its extras, each file with its
hash. An environment gets the part of the lock that its extras need. uv installs it; pip does where
uv can't be had or fails.

`python -m scripts.packages lock` writes the lock again (`make lock`).
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.system import SetupFailed

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
ALWAYS = frozenset({"bucket", "dagster", "dev", "export", "gateway", "postgres", "spark"})
"""The extras that every environment has; `dev` are linters, the test runner, uv."""

STORED = "--build-option=--compression=stored"
"""PySpark comes as source. Its wheel is used once, so to compress 450 MB of jars is wasted time."""


# --- which packages -----------------------------------------------------------------------------


def chosen_extras(root: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    """The extras of this environment, sorted.

    ACID_EXTRAS names them, separated by commas or blanks, and none if it is empty. Without it the
    files decide: assets/flights.py needs `demo`, a notebook needs `notebook`. Raises SetupFailed
    for a name that pyproject.toml does not have.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    known = set(project["optional-dependencies"])
    if "ACID_EXTRAS" in env:
        named = set(env["ACID_EXTRAS"].replace(",", " ").split())
        if not named <= known:
            raise SetupFailed(
                f"ACID_EXTRAS names {', '.join(sorted(named - known))}: pyproject.toml has "
                f"{', '.join(sorted(known - ALWAYS))}"
            )
    else:
        named = set()
        if (root / "assets" / "flights.py").exists():
            named.add("demo")
        if any((root / "notebooks").glob("*.ipynb")):
            named.add("notebook")
    return tuple(sorted((ALWAYS | named) & known))


def requirements(root: Path, extras: Sequence[str]) -> str:
    """The part of the lock that the project with `extras` needs.

    The lock notes after each package which others need it (`# via`); from there the packages are
    found that a chosen dependency leads to.
    """
    entries = _entries((root / "requirements.lock").read_text())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    declared = [*project["dependencies"], *(line for name in extras for line in optional[name])]
    needs: dict[str, set[str]] = {}
    for name, texts in entries.items():
        for parent in _needed_by("".join(texts)):
            needs.setdefault(parent, set()).add(name)
    waiting, chosen = [_name_of(requirement) for requirement in declared], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in chosen:
            chosen.add(name)
            waiting.extend(needs.get(name, ()))
    return "".join(text for name, texts in entries.items() if name in chosen for text in texts)


def _entries(lock: str) -> dict[str, list[str]]:
    """The lines of each package. A package that differs between Pythons has several entries."""
    entries: dict[str, list[str]] = {}
    for name, text in _each(lock):
        entries.setdefault(name, []).append(text)
    return entries


def _each(lock: str) -> Iterator[tuple[str, str]]:
    """The entries of the lock, in its order, each with the name of its package."""
    for text in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if text[:1].isalnum():
            yield _name_of(text), text


def _needed_by(entry: str) -> list[str]:
    """The packages that the comment below an entry names."""
    _, _, comment = entry.partition("# via")
    return re.findall(r"^[ #]*([A-Za-z0-9][\w.-]*)", comment, re.MULTILINE)


def _name_of(requirement: str) -> str:
    """`Great_Expectations>=1` is `great-expectations`."""
    [name] = re.findall(r"^[A-Za-z0-9][\w.-]*", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


# --- who installs them --------------------------------------------------------------------------


def install(python: Path, needed: str) -> str:
    """Installs exactly the packages of `needed` for `python`; the tool that did it: uv or pip.

    Each file has to have a hash of the lock. Raises SetupFailed if neither tool could do it.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "requirements.txt")
        path.write_text(needed)
        config = pip_config(python)
        uv = provide_uv(python, Path(directory), needed)
        if uv:
            with ticking():
                done = _run(_uv_command(uv, python, path, config), uv_environment(config))
            if done:
                return "uv"
            print("      uv failed, see above: pip installs the packages instead", flush=True)
        else:
            # Where there is no uv, pip would fail for it as well. No other package needs it.
            others = [text for name, text in _each(needed) if name != "uv"]
            path.write_text("".join(others))
        with ticking():
            done = _run(_pip_command(python, "--quiet", "--use-pep517", "-r", str(path)))
        if done:
            return "pip"
    raise SetupFailed(
        "installing packages failed, see above: check the network (and the "
        "proxy settings, if any), then call make again; it continues from here"
    )


def provide_uv(python: Path, directory: Path, needed: str) -> Path | None:
    """The environment's uv, which pip installs as the lock pins it.

    If that fails, the uv of this machine; None if there is none that runs.
    """
    uv = python.parent / "uv"
    entry = "".join(_entries(needed).get("uv", ()))
    version = re.findall(r"==([\w.]+)", entry)
    if not version:
        return None
    if _version_of(uv) == version[0]:
        return uv
    path = directory / "uv.txt"
    path.write_text(entry)
    command = _pip_command(python, "--no-deps", "--only-binary=:all:", "-r", str(path))
    done = subprocess.run(command, env=_without_user(), capture_output=True, text=True)
    if done.returncode == 0 and _version_of(uv) == version[0]:
        return uv
    own = uv_on_path()
    if own is None:
        why = (done.stderr.strip().splitlines() or ["it does not run"])[-1].removeprefix("ERROR: ")
        print(f"      uv can't be had here ({why}): pip installs the packages, slowly", flush=True)
    return own


def uv_on_path() -> Path | None:
    """The machine's uv, if it runs (a version manager's shim may be on PATH and not run)."""
    uv = shutil.which("uv")
    return Path(uv) if uv and _version_of(Path(uv)) else None


def _version_of(uv: Path) -> str | None:
    try:
        done = subprocess.run([str(uv), "--version"], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.split()[1] if done.returncode == 0 else None


def _uv_command(uv: Path, python: Path, path: Path, config: Mapping[str, str]) -> list[str]:
    """`sync` also removes what the lock does not have, such as packages of an extra that went."""
    return [
        str(uv),
        "pip",
        "sync",
        "--quiet",
        "--require-hashes",
        # What builds a package from its source is pinned as well.
        "--build-constraints",
        str(path),
        "--config-settings-package",
        f"pyspark:{STORED}",
        *(["--no-index"] if config.get("no-index", "").lower() in ("1", "true", "yes") else []),
        "--python",
        str(python),
        str(path),
    ]


def _pip_command(python: Path, *arguments: str) -> list[str]:
    pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    return [*pip, "--require-hashes", *arguments]


def _without_user() -> dict[str, str]:
    # PIP_USER=1, which some machines set, can't work in a virtual environment.
    return {**os.environ, "PIP_USER": "0"}


def _run(command: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
    return subprocess.run(command, env=env or _without_user()).returncode == 0


@contextmanager
def ticking(every: float = 1.0) -> Iterator[None]:
    """Shows the seconds on a terminal, since neither tool says much while it works."""
    if not sys.stdout.isatty():
        yield
        return
    began, ended = time.monotonic(), threading.Event()

    def tick() -> None:
        while not ended.wait(every):
            print(f"\r      {time.monotonic() - began:.0f} s", end="", flush=True)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        print("\r\033[K", end="", flush=True)


# --- what pip is told, handed over to uv --------------------------------------------------------


def pip_config(python: Path) -> dict[str, str]:
    """pip's settings, from its files and from PIP_… variables; the latter go before."""
    command = [str(python), "-m", "pip", "config", "list"]
    done = subprocess.run(command, env=_without_user(), capture_output=True, text=True)
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in sections:
            sections[section][name] = str(ast.literal_eval(value))
    return sections["global"] | sections["install"] | sections[":env:"]


def uv_environment(
    config: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """`environ`, and in it for uv what pip is configured to do: uv reads no pip.conf.

    What UV_… variables and SSL_CERT_FILE say already stays.
    """
    env = {name: value for name, value in environ.items() if name != "UV_NO_VERIFY_HASHES"}

    def give(name: str, value: str | None, *others: str) -> None:
        if value and not any(env.get(each) for each in (name, *others)):
            env[name] = value

    give("UV_DEFAULT_INDEX", config.get("index-url"), "UV_INDEX_URL")
    extra = " ".join(config.get("extra-index-url", "").split())
    give("UV_INDEX", extra, "UV_EXTRA_INDEX_URL")
    if extra:
        # pip takes the best file of all indexes; hashes decide which one it may be.
        give("UV_INDEX_STRATEGY", "unsafe-best-match")
    links = config.get("find-links", "").split()
    # pip passes over a directory that is not there, uv fails.
    give("UV_FIND_LINKS", ",".join(each for each in links if "://" in each or Path(each).exists()))
    give("UV_INSECURE_HOST", " ".join(config.get("trusted-host", "").split()))
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        give(name, config.get("proxy"), name.lower())
    certificates = config.get("cert") or env.get("REQUESTS_CA_BUNDLE") or env.get("CURL_CA_BUNDLE")
    if certificates:
        directory = Path(certificates).is_dir()
        give("SSL_CERT_DIR" if directory else "SSL_CERT_FILE", certificates)
    give("SSL_CLIENT_CERT", config.get("client-cert"))
    give("UV_HTTP_TIMEOUT", config.get("timeout") or config.get("default-timeout"))
    return env


# --- make lock ----------------------------------------------------------------------------------


def write_lock(flags: Sequence[str]) -> int:
    """Pins the dependencies and all extras of pyproject.toml, for every Python and system."""
    python = Path(sys.executable)
    command = [
        str(python.parent / "uv"),
        *("pip", "compile", "pyproject.toml", "--quiet", "--all-extras"),
        *("--universal", "--python-version", "3.11", "--no-strip-extras", "--generate-hashes"),
        *("--no-header", "--no-emit-index-url", "--no-emit-find-links"),
        *flags,
        *("-o", str(LOCK)),
    ]
    env = uv_environment(pip_config(python))
    return subprocess.run(command, cwd=ROOT, env=env).returncode


if __name__ == "__main__":
    if sys.argv[1:2] != ["lock"]:
        sys.exit("usage: python -m scripts.packages lock [flags of uv pip compile]")
    sys.exit(write_lock(sys.argv[2:]))
