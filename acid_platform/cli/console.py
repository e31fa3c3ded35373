"""How each command finds its warehouse, prints, and fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from acid_platform.cli.project import nearby
from acid_platform.display import show_table
from acid_platform.errors import AcidError, NoSuchWarehouse
from acid_platform.location import Location
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.tables.joining import join

if TYPE_CHECKING:
    from acid_platform.warehouse import Warehouse

PIPE_WIDTH = 240
Rows = Iterable[Mapping[str, Any]]


class Failed(click.ClickException):
    """A failed command: one line, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {' '.join(self.message.split())}", file, err=True)


class Group(click.Group):
    """Turns the platform's errors into one line; anything else is a bug and keeps its trace."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AcidError as error:
            raise Failed(str(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A misspelt command gets the nearest ones as a suggestion."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(ctx))
            if not near:
                raise
            hint = f"{error.message} Did you mean {' or '.join(map(repr, near))}?"
            raise click.UsageError(hint, ctx) from error


class Session:
    """What the options of a command chose, and how it prints."""

    def __init__(self, warehouse: str | None, as_json: bool) -> None:
        self._warehouse = warehouse
        self.json = as_json

    @property
    def named(self) -> bool:
        return bool(self._warehouse or os.environ.get("ACID_WAREHOUSE"))

    @property
    def place(self) -> Location:
        return Location.of(self._warehouse)

    def existing(self) -> Location:
        """Raises NoSuchWarehouse: a command never makes a warehouse out of a misspelt path."""
        place = self.place
        if not place.made:
            others = nearby(place.warehouse)
            raise NoSuchWarehouse(
                f"{place.warehouse} has no metastore in {place.metastore}; check --warehouse and"
                " ACID_WAREHOUSE, or make one with `acid metastore start`; if tables are there, see"
                " `acid metastore restore` and `acid metastore rebuild`"
                + (f"; there is --warehouse {' and '.join(others)}" if others else "")
            )
        return place

    def metastore(self) -> Metastore:
        return join(self.existing())

    def open(self) -> Warehouse:
        """With pyspark loaded; Spark itself starts at first need."""
        from acid_platform.warehouse import Warehouse

        return Warehouse.open(self.existing().warehouse)

    def show(
        self,
        rows: Rows,
        columns: Iterable[str] | None = None,
        title: str = "",
        empty: str = "nothing",
    ) -> None:
        """A table of the columns, or in JSON a list of whole rows."""
        every = list(rows)
        if self.json:
            self.say_json(every)
        elif every:
            self.render(show_table(every, None if columns is None else tuple(columns), title))
        else:
            click.echo(f"{title}: {empty}" if title else empty)

    def say(self, value: Mapping[str, Any], text: str) -> None:
        """One line, or in JSON the value behind it."""
        if self.json:
            self.say_json(value)
        else:
            click.echo(text)

    def render(self, what: Any) -> None:
        console = Console(highlight=False)
        if not console.is_terminal:  # a pipe has no width; nothing may be cut
            console = Console(highlight=False, width=PIPE_WIDTH)
        console.print(what)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """A spinner on a terminal while the block works; without `text` none."""
        console = Console(stderr=True)
        if not (text and console.is_terminal):
            yield
            return
        with console.status(text):
            yield

    def say_json(self, value: Any) -> None:
        click.echo(json.dumps(value, default=str))


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Adds --warehouse and --json, and passes them as a Session."""

    @click.option(
        "--warehouse",
        metavar="PATH",
        help="Path or URI; default ACID_WAREHOUSE, else"
        " var/warehouse of the project around this directory.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(function)
    def run(warehouse: str | None, as_json: bool, **rest: Any) -> None:
        function(Session(warehouse, as_json), **rest)

    return run


def complete_tables(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the warehouse's tables, for the shell; nothing if its metastore does not run."""
    session = Session(ctx.params.get("warehouse"), False)
    try:
        with Metastore.connect(session.existing().metastore, autostart=False) as metastore:
            return sorted(
                record.name for record in metastore.tables() if record.name.startswith(incomplete)
            )
    except AcidError:
        return []
