"""Finding a Java that Spark can use, or installing one."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.system import PackageManager, SetupFailed, install_one_of

OLDEST = 17
# Spark's documentation names these; among installed ones they are taken in this order.
TESTED = (17, 21, 25)

USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
APT_PACKAGES = tuple(f"openjdk-{version}-jre-headless" for version in TESTED)
BREW_PACKAGES = ("openjdk@17", "openjdk@21")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that ran. `home` is what JAVA_HOME has to be; `source` is where it was found."""

    home: Path
    version: str
    major: int
    source: str


@dataclass(frozen=True, slots=True)
class Search:
    """The Java to use, if any, and why each earlier candidate was refused."""

    found: Java | None
    refused: tuple[str, ...]


def probe(executable: Path, source: str) -> Java | str:
    """Runs `executable`; returns its Java, or the reason why it can't be used.

    Java itself says where its home is: the executable may be a link, a shim or a wrapper.
    """
    try:
        shown = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{executable} ({source}) does not run"
    text = shown.stderr + shown.stdout
    settings = dict(re.findall(r"^\s+(java\.\S+) = (.*?)\s*$", text, re.MULTILINE))
    home, version = settings.get("java.home"), settings.get("java.version")
    if shown.returncode != 0 or not home or not version:
        return f"{executable} ({source}) does not run"
    # 1.8.0_392 is Java 8; 17.0.15, 21 and 25-ea name the major version first.
    digits = re.match(r"(?:1\.)?(\d+)", version)
    major = int(digits.group(1)) if digits else 0
    if major < OLDEST:
        return f"{executable} ({source}) is Java {version}"
    return Java(Path(home), version, major, source)


def candidates(env: Mapping[str, str], places: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Executables in the order in which they are tried, each with the place where it was found."""
    if env.get("JAVA_HOME"):
        yield Path(env["JAVA_HOME"], "bin", "java"), "JAVA_HOME"
    on_path = shutil.which("java", path=env.get("PATH", ""))
    # macOS ships a /usr/bin/java that only tells people to install one.
    if on_path and not (platform.system() == "Darwin" and on_path == "/usr/bin/java"):
        yield Path(on_path), "PATH"
    java_home = Path("/usr/libexec/java_home")
    if java_home.exists():
        told = subprocess.run([str(java_home), "-v", f"{OLDEST}+"], capture_output=True, text=True)
        if told.returncode == 0:
            yield Path(told.stdout.strip(), "bin", "java"), str(java_home)
    homes = [home for place in places for home in _expand(place)]
    for home in sorted(homes, key=_preference):
        yield home / "bin" / "java", "usual place"


def _expand(place: str) -> Iterator[Path]:
    pattern = Path(place).expanduser()
    yield from (
        home
        for home in Path("/").glob(str(pattern.relative_to("/")))
        if (home / "bin" / "java").exists()
    )


def _preference(home: Path) -> tuple[int, str]:
    """Tested versions first. This is only an order: `probe` asks Java for its version."""
    # On macOS the version is in the name of an outer directory, such as jdk-21.jdk/Contents/Home.
    named = {int(number) for part in home.parts[-4:] for number in re.findall(r"\d+", part)}
    return (
        next((rank for rank, major in enumerate(TESTED) if major in named), len(TESTED)),
        str(home),
    )


def find(env: Mapping[str, str], places: Sequence[str] = USUAL_PLACES) -> Search:
    """The first candidate that is Java 17 or newer."""
    refused: list[str] = []
    for executable, source in candidates(env, places):
        result = probe(executable, source)
        if isinstance(result, Java):
            return Search(result, tuple(refused))
        refused.append(result)
    return Search(None, tuple(refused))


def missing_text(search: Search, manager: PackageManager | None) -> str:
    """One line: what is missing, what was found instead, and what to run."""
    name = manager.name if manager else None
    run = {
        "apt-get": f"run `sudo apt-get install -y {APT_PACKAGES[0]}` "
        f"({APT_PACKAGES[1]} where there is no 17)",
        "brew": f"run `brew install {BREW_PACKAGES[0]}`",
    }.get(name or "", f"install a JDK or JRE {OLDEST} with the package manager of this system")
    found = "; ".join(search.refused) or "no java on PATH, in JAVA_HOME or in the usual places"
    return (
        f"Spark needs Java {OLDEST} or newer, and there is none ({found}): {run}, "
        f"or set JAVA_HOME, then call make again"
    )


def find_or_install(env: Mapping[str, str], manager: PackageManager | None) -> Java:
    """A usable Java; installs one if that needs no password. Raises SetupFailed."""
    search = find(env)
    if search.found:
        return search.found
    if manager and manager.prefix is not None:
        print(f"      there is no Java 17 or newer: installing it with {manager.name}", flush=True)
        packages = BREW_PACKAGES if manager.name == "brew" else APT_PACKAGES
        if install_one_of(manager, packages):
            search = find(env)
            if search.found:
                return search.found
    raise SetupFailed(missing_text(search, manager))
