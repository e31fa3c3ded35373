"""`acid contract`: tables by data contracts, and contracts of tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from acid_platform.cli.console import CommandSession, LocalPath, command, echo, main
from acid_platform.errors import InvalidDefinition, NoSuchTable

_FILE = LocalPath(path_type=Path, exists=True, dir_okay=False)


@main.group()
def contract() -> None:
    """Data contracts of the Open Data Contract Standard 3."""


@command(contract, "import")
@click.argument("file", type=_FILE)
@click.option(
    "--suites",
    type=LocalPath(path_type=Path, file_okay=False),
    help="Write the rules there: a suite of Great Expectations for each table, for its asset.",
)
def import_contract(session: CommandSession, file: Path, suites: Path | None) -> None:
    """Make the tables of the contract FILE that are not there; list what is left out.

    A table that is there must be as the contract says: else nothing is made, and the error says
    in what they differ.
    """
    from acid_platform.handles.contracts import tables_of_contract

    try:
        text = file.read_text("utf-8")
    except ValueError as error:
        raise InvalidDefinition(f"{file} is no text in UTF-8: {error}") from error
    tables, left_out = tables_of_contract(text, file.name)
    rows: list[dict[str, Any]] = []
    with session.open() as warehouse:
        present: set[str] = set()
        for table in tables:
            try:
                record = warehouse.metastore.table(table.name)
            except NoSuchTable:
                continue
            present.add(table.name)
            if differs := table.differences(record):
                raise InvalidDefinition(
                    f"{table.name} is there with other {', '.join(differs)} than {file.name} says:"
                    " alter the table or the contract; acid contract export shows what the table is"
                )
        for table in tables:
            left_out += table.left_out
            if table.name not in present:
                table.create(warehouse)
            rules = len(table.expectations)
            suite = _written(suites, table.name, table.expectations) if suites else ""
            if table.expectations and not suites:
                left_out.append(f"{table.name}: {rules} rules; --suites DIR writes them as a suite")
            made = "is there" if table.name in present else "made"
            rows.append({"table": table.name, "state": made, "rules": rules, "suite": suite})
    if session.json:
        session.say_json({"tables": rows, "left_out": left_out})
        return
    session.show(rows, ("table", "state", "rules", "suite"), empty="the contract has no tables")
    for each in left_out:
        echo(f"left out: {each}", err=True)


def _written(folder: Path, table: str, expectations: list[dict[str, Any]]) -> str:
    """The suite's file; none for a table without rules."""
    if not expectations:
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table}.json"
    suite = {"name": table, "expectations": expectations, "meta": {}}
    path.write_text(json.dumps(suite, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return str(path)


@command(contract)
@click.argument("table")
@click.option("--suite", type=_FILE, help="The suite of its checks, whose rules are added.")
@click.option("--version", default="1.0.0", show_default=True, help="The contract's version.")
def export(session: CommandSession, table: str, suite: Path | None, version: str) -> None:
    """Print the contract of TABLE, in YAML."""
    from acid_platform.handles.contracts import contract_of

    expectations = []
    if suite is not None:
        try:
            expectations = json.loads(suite.read_text("utf-8"))["expectations"]
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidDefinition(
                f"{suite} is no suite of Great Expectations: {error}; import writes one"
            ) from error
    with session.open() as warehouse:
        record = warehouse.table(table).record
    click.echo(contract_of(record, expectations, version), nl=False)
