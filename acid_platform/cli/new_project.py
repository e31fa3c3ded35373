"""`acid new`: a project of a few files that depends on the platform."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from acid_platform import __version__
from acid_platform.cli.console import CommandSession, command, main
from acid_platform.errors import InvalidDefinition

FILES = {
    "pyproject.toml": """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["acid-platform[dagster]>={version}"]

[project.optional-dependencies]
dev = ["dagster-dg-cli>=1.13,<1.14", "pytest>=8.3"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools.packages.find]
include = ["{name}*"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{name}"
code_location_target_module = "{name}.definitions"
registry_modules = ["acid_platform.orchestration.components"]
""",
    "workspace.yaml": "load_from:\n  - python_module: {name}.definitions\n",
    "{name}/__init__.py": "",
    "{name}/definitions.py": '''"""What is in defs/, and the services of the platform."""

from pathlib import Path

import dagster as dg

from acid_platform.orchestration import SparkResource, WarehouseResource, services


@dg.definitions
def defs() -> dg.Definitions:
    resources = {{"warehouse": WarehouseResource(), "spark": SparkResource()}}
    own = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    return dg.Definitions.merge(services(), dg.Definitions(resources=resources), own)
''',
    "{name}/defs/__init__.py": "",
    "{name}/defs/orders/defs.yaml": """\
type: acid_platform.orchestration.components.TableAssetComponent
attributes:
  table: {name}.orders
  columns: id int, customer string, amount double
  source: orders.csv
  write_mode: upsert
  key: [id]
  expectations:
    - name: amounts_are_given
      kind: ExpectColumnValuesToNotBeNull
      arguments: {{column: amount}}
""",
    "{name}/defs/orders/orders.csv": "id,customer,amount\n1,Ada,12.5\n2,Grace,20\n",
    "tests/test_orders.py": '''"""The table {name}.orders, in a warehouse of the test."""

from pathlib import Path

import dagster as dg
import pytest

from {name}.definitions import defs
from acid_platform.orchestration import WarehouseResource


def test_each_order_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACID_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("ACID_ENGINE", "local")
    orders = defs().resolve_assets_def(dg.AssetKey(["{name}", "orders"]))
    assert dg.materialize([orders]).success and dg.materialize([orders]).success
    with WarehouseResource().open() as warehouse:
        assert warehouse.table("{name}.orders").count() == 2
        warehouse.metastore.stop()
''',
    "Makefile": """# make setup, then make dev; make test and make check before a commit.
export DAGSTER_HOME := $(CURDIR)/var/dagster
export ACID_WAREHOUSE ?= $(CURDIR)/var/warehouse
# Where the platform is: a clone, a wheel or a package's name.
PLATFORM ?= {platform}
IN_VENV = PATH="$(CURDIR)/.venv/bin:$$PATH"

.PHONY: setup dev test check
setup: ## the packages, into .venv
	python3 -m venv .venv
	.venv/bin/pip install '$(PLATFORM)[dagster]' --editable '.[dev]'

dev: ## Dagster's pages at http://127.0.0.1:3000
	mkdir -p "$(DAGSTER_HOME)"
	$(IN_VENV) dg dev

test:
	.venv/bin/python -m pytest tests

check: ## whether all definitions load
	$(IN_VENV) dg check defs
""",
    ".gitignore": "__pycache__/\n*.egg-info/\n.pytest_cache/\n.venv/\nvar/\n",
    ".github/workflows/ci.yml": """on: [push, pull_request]

jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v7
      - uses: actions/setup-python@v7
        with: {{ python-version: "3.12" }}
      - run: make setup
      - run: make check
      - run: make test
""",
}
"""The text of each file, by its path in the project."""


@command(main)
@click.argument("path", type=click.Path(path_type=Path, file_okay=False))
def new(session: CommandSession, path: Path) -> None:
    """Write a project at PATH: a table from a CSV file with its test, for Dagster's dg.

    The last part of PATH is the name of its package and of its database. `make setup dev` there
    starts it, and `dg scaffold defs` adds to it.
    """
    name = path.absolute().name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name == "tests":
        raise InvalidDefinition(
            f"{name!r} is no name for a package: end PATH in letters, digits and _, such as"
            " projects/shop"
        )
    if path.exists() and any(path.iterdir()):
        raise InvalidDefinition(f"{path} is not empty: name another directory")
    for place, text in FILES.items():
        file = path / place.format(name=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        filled = text.format(name=name, version=__version__, platform=_platform())
        file.write_text(filled, "utf-8")
    session.say(
        {"path": str(path), "files": len(FILES)},
        f"{path}: {len(FILES)} files; go there, then: make setup, make test, make dev",
    )


def _platform() -> str:
    """What pip installs to have the platform: the clone that runs, or the package."""
    clone = Path(__file__).parents[2]
    return str(clone) if (clone / "pyproject.toml").exists() else "acid-platform"
