"""What `make lab-dist` refuses, and what it takes out of the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from acid_platform import __version__
from scripts import release

CHANGELOG = """# Changelog

## Unreleased

- not yet

## 0.2.0 (2025-02-01)

### Added
- this

## 0.1.0

- the first
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "### Added\n- this\n"
    assert release.notes(CHANGELOG, "0.1.0") == "- the first\n"
    with pytest.raises(release.NotReleased, match=r"has no section 0\.3\.0"):
        release.notes(CHANGELOG, "0.3.0")


def test_a_tag_of_another_version_is_refused() -> None:
    release.check_tag("", "0.2.0")
    release.check_tag("v0.2.0", "0.2.0")
    with pytest.raises(release.NotReleased, match=r"the tag v0\.1\.0 is not v0\.2\.0"):
        release.check_tag("v0.1.0", "0.2.0")


def test_the_changelog_has_the_version_of_the_code_and_known_groups() -> None:
    text = (release.ROOT / "CHANGELOG.md").read_text()
    assert release.notes(text, __version__)
    groups = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(groups) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_every_address_of_the_project_is_the_one_that_a_release_replaces() -> None:
    text = Path(release.ROOT, "pyproject.toml").read_text()
    addresses = tomllib.loads(text)["project"]["urls"]
    assert len(addresses) == 4
    assert all(address.startswith(release.PLACEHOLDER) for address in addresses.values())
