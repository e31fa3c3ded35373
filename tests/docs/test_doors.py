"""SECURITY.md lists every door: the code says which there are (P67)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from acid_platform.cli import table_commands
from acid_platform.cli.main import main
from scripts.rule_page import PAGE, Rule, entries
from tests.fuzz.doors import DOORS

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "acid_platform"
LIST = (ROOT / "SECURITY.md").read_text().partition("## Appendix: every door")[2]
NAMED = set(re.findall(r"`([^`]+)`", LIST))
_OPENING = re.compile(
    r"(json|pickle|tomllib|yaml)\.loads?|eval|exec|(importlib\.)?import_module|subprocess\.\w+"
    r"|(\w+\.)*(ParquetFile|read_table|open_csv|ORCFile|load_verify_locations|get_context|parse_one"
    r"|load_pem_x509_certificate|FromInputFile.table_metadata|in_memory|attach|DeltaTable|HTTPServer|create_server)"
    r"|pyorc\.Reader|dataset\.dataset|library\.connect|socket\.(create_connection|create_server)"
)
"""Calls that open, parse or run something."""


def opening_modules() -> Iterator[tuple[str, str]]:
    for file in sorted(LIBRARY.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and _OPENING.fullmatch(ast.unparse(node.func)):
                yield str(file.relative_to(LIBRARY)), ast.unparse(node.func)


def commands(command: click.Command, name: str = "acid") -> Iterator[tuple[str, click.Command]]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    if not below or (command.params and command is not main):
        yield name, command
    for each in below:
        yield from commands(each, f"{name} {each.name}")


@pytest.mark.more
def test_P67_every_door_is_in_the_list() -> None:
    lacking = {f"{module}: {call}" for module, call in opening_modules() if module not in NAMED}
    every = dict(commands(main))
    lacking |= {
        name
        for name in every
        if name != "acid import" and not any(one.split(" --")[0] == name for one in NAMED)
    }
    lacking |= {f"acid import {kind}" for kind in table_commands._OPTIONS} - NAMED
    lacking |= {f"fuzz: {door}" for door in DOORS if f"`{door}`" not in LIST}
    ports = {
        name
        for name, command in every.items()
        if {"--listen", "--metrics"} & {opt for each in command.params for opt in each.opts}
    }
    lacking |= {
        f"port of {name}"
        for name in ports
        if f"`{name}`" not in LIST.partition("### Ports and calls")[2]
    }
    assert not lacking


def test_P67_the_list_of_doors_names_what_there_is() -> None:
    modules = {one for one in NAMED if one.endswith(".py")}
    assert not {one for one in modules if not any((at / one).is_file() for at in (LIBRARY, ROOT))}
    rules = {entry.id for entry in entries(PAGE.read_text()) if isinstance(entry, Rule)}
    for row in re.findall(r"(?m)^\| .*$", LIST):
        *_, last = (cell.strip() for cell in row.strip("|").split("|"))
        if not last.startswith("test") or "`" in last:
            assert {*re.findall(r"P\d+", row)} & rules or "errors and logs" in row, row
            assert "`" in last, row
    tests = {one for one in NAMED if one.startswith("test_")}
    texts = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert not {one for one in tests if f"def {one}(" not in texts}


def test_P67_no_example_has_a_password_that_everybody_knows() -> None:
    for file in (ROOT / "deploy").rglob("*.y*ml"):
        text = file.read_text()
        assert list(yaml.safe_load_all(text))
        assert not re.findall(r"(?i)\$\{\w*(?:password|secret|key)\w*:?-[^}]+\}", text), file
        assert not re.findall(r"(?im)^\s*\w*(?:password|secret)\w*:\s*[\"']?\w+[\"']?\s*$", text), (
            file
        )
