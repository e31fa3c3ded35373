"""`make lab-dist`: the packages of the last commit, and what the changelog says of their version.

Writes a wheel, a source distribution and notes.md into build/dist.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from acid_platform import __version__
from scripts import packages

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "build" / "dist"
PLACEHOLDER = "https://example.org/acid-platform"
"""The address in pyproject.toml; a release has that of its repository."""


class NotReleased(Exception):
    """The text says what has to be done first."""


def check_tag(tag: str, version: str) -> None:
    """Raises NotReleased unless `tag` is that of `version`, such as v0.2.0. Empty is no tag."""
    if tag and tag != f"v{version}":
        raise NotReleased(
            f"the tag {tag} is not v{version}: change __version__ in acid_platform/__init__.py, "
            "or the tag"
        )


def notes(changelog: str, version: str) -> str:
    """The section of `version`, without its heading. Raises NotReleased if there is none."""
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if heading.split()[0].strip("[]") == version:
            return text.strip() + "\n"
    raise NotReleased(
        f"CHANGELOG.md has no section {version}: give what stands under Unreleased this heading"
    )


def build(url: str) -> None:
    """Builds what git has, with `url` as the project's address."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        raise NotReleased("uv is not in .venv: call make setup where an index has it")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
        project = Path(directory, "pyproject.toml")
        project.write_text(project.read_text().replace(PLACEHOLDER, url or PLACEHOLDER))
        env = packages.uv_environment(packages.pip_config(Path(sys.executable)))
        command = [str(uv), "build", "--quiet", "--out-dir", str(DIST), directory]
        if subprocess.run(command, env=env).returncode != 0:
            raise NotReleased("the build failed, see above")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make lab-dist", description=__doc__)
    parser.add_argument("--tag", default="", help="refuse unless it is the tag of this version")
    parser.add_argument("--url", default="", help="the address of the repository")
    options = parser.parse_args(arguments)
    try:
        check_tag(options.tag, __version__)
        text = notes((ROOT / "CHANGELOG.md").read_text(), __version__)
        build(options.url)
    except NotReleased as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    (DIST / "notes.md").write_text(text)
    for path in sorted(DIST.iterdir()):
        if path.name != ".gitignore":
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
