"""How commands find their warehouse, print results and fail."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from acid_platform import __version__
from acid_platform.base.arguments import nearest_name
from acid_platform.base.location import Location, holds_log
from acid_platform.base.paths import is_uri, user_path
from acid_platform.base.progress import shown
from acid_platform.display import show_table
from acid_platform.errors import AcidError, MetastoreUnavailable, NoSuchWarehouse, visible
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.tables.joining import join

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

PIPE_WIDTH = 240
ROWS = 1000
"""The most rows that are printed without --limit."""
Rows = Iterable[Mapping[str, Any]]


def echo(text: str, err: bool = False) -> None:
    """Prints a text for people, on standard error with `err`: control characters that came from
    data or from another program are made visible."""
    click.echo(visible(text, lines=True), err=err)


def told(error: AcidError) -> str:
    """An error with its notes."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


class Failed(click.ClickException):
    """A failed command: prints one line and exits with code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {visible(' '.join(self.message.split()))}", file, err=True)


class Group(click.Group):
    """Prints the platform's errors as one line; other errors are bugs and keep their traceback."""

    group_class = type

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AcidError as error:
            raise Failed(str(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests the nearest command for a misspelt one, and for a word that is an argument of
        another command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            words = dict(self._words(ctx))
            near = (
                words.get(args[0])
                or nearest_name(args[0], self.list_commands(ctx))
                or words.get(nearest_name(args[0], words) or "")
            )
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near!r}?", ctx) from error

    def _words(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Words that commands take, each with its command before it."""
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            for argument in command.params if command else ():
                if isinstance(argument, click.Argument) and isinstance(argument.type, OneOf):
                    yield from ((str(word), f"{name} {word}") for word in argument.type.choices)


class OneOf(click.Choice[str]):
    """One of these words; for a misspelt one the error suggests the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        near = nearest_name(str(value), map(str, self.choices))
        if near is not None:
            self.fail(f"{value!r} is none of {', '.join(self.choices)}; did you mean {near}?")
        return super().convert(value, param, ctx)


class LocalPath(click.Path):
    """A path of this machine, however it is spelt (P70)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = value if value == "-" and self.allow_dash else user_path(value)
        if is_uri(path):
            self.fail(f"{value} is not on this machine; name a local path", param, ctx)
        return super().convert(path, param, ctx)


WITHOUT_TLS = click.option(
    "--without-tls",
    is_flag=True,
    help="Serve other machines in clear text: the network is trusted.",
)
"""An option of the commands that have --listen."""

METRICS = click.option(
    "--metrics",
    metavar="HOST:PORT",
    default="",
    help="Serve /metrics for Prometheus there; :PORT: for this machine alone.",
)

SESSION_OPTIONS = (
    click.Option(
        ["--warehouse"],
        metavar="PATH",
        help="Path or URI; default ACID_WAREHOUSE, else"
        " var/warehouse of the project around this directory.",
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
)
"""They may stand before the name of the command, or behind it."""


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="acid")
def main(warehouse: str | None, as_json: bool) -> None:
    """Hive ACID tables: list, query, compact and clean."""


main.params += SESSION_OPTIONS


class CommandSession:
    """The warehouse and the output format that a command's options chose."""

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
        """The location, or NoSuchWarehouse: a misspelt path must not make a warehouse."""
        location = self.place
        if not location.made:
            others = _nearby(location.warehouse)
            raise NoSuchWarehouse(
                f"{location.warehouse} has no metastore in {location.metastore}; check --warehouse"
                " and ACID_WAREHOUSE, or make one with `acid init`; if tables are there,"
                " see `acid metastore restore` and `acid metastore rebuild`"
                + (f"; there is --warehouse {' and '.join(others)}" if others else "")
            )
        return location

    def metastore(self) -> Metastore:
        return join(self.existing())

    def open(self, branch: str | None = None) -> Warehouse:
        """Opens the warehouse, or a branch of it (None: as ACID_BRANCH says); Spark is loaded and
        starts when it is needed."""
        from acid_platform.handles.warehouse import Warehouse

        warehouse = Warehouse.open(self.existing().warehouse, branch=branch)
        warehouse.notice = partial(echo, err=True)
        return warehouse

    def show(
        self,
        rows: Rows,
        columns: Iterable[str] | None = None,
        title: str = "",
        empty: str = "nothing",
    ) -> None:
        """Prints a table of the columns, or in JSON a list of complete rows."""
        every = list(rows)
        if self.json:
            self.say_json(every)
        elif every:
            self.render(show_table(every, None if columns is None else tuple(columns), title))
        else:
            echo(f"{title}: {empty}" if title else empty)

    def say(self, value: Mapping[str, Any], text: str) -> None:
        """Prints a line, or in JSON the value."""
        if self.json:
            self.say_json(value)
        else:
            echo(text)

    def render(self, what: Any, lines: int = 0) -> None:
        """Prints what rich renders; through a pager if it has more `lines` than the terminal."""
        from rich.console import Console

        console = Console(highlight=False)
        if console.is_terminal and lines > console.height:
            with console.pager():
                console.print(what)
            return
        if not console.is_terminal:  # a pipe has no width, and nothing may be cut
            console = Console(highlight=False, width=PIPE_WIDTH)
        console.print(what)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Shows a spinner on a terminal during the block, with what the block tells of its
        progress, unless `text` is empty."""
        from rich.console import Console

        console = Console(stderr=True)
        if not text or not console.is_terminal:
            yield
            return

        def show(what: str, count: int, total: int | None) -> None:
            status.update(f"{text}: {what}, {count:,}" + (f" of {total:,}" if total else ""))

        with console.status(text) as status, shown(show):
            yield

    def say_json(self, value: Any) -> None:
        click.echo(json.dumps(value, default=str))


def _nearby(warehouse: str) -> list[str]:
    """Warehouses near a path that has none, such as the demo's."""
    above = Path(warehouse).parent
    metastores = sorted(above.glob("*/_metastore")) + sorted(above.glob("*/*/_metastore"))
    warehouses = []
    for metastore in metastores:
        with suppress(MetastoreUnavailable):  # somebody else's
            warehouses += [os.path.relpath(metastore.parent)] if holds_log(metastore) else []
    return warehouses


def with_session(function: Callable[..., None]) -> Callable[..., None]:
    """The values of SESSION_OPTIONS reach the function as a CommandSession.

    Raises UsageError if two warehouses are named.
    """

    @wraps(function)
    def run(warehouse: str | None, as_json: bool, **rest: Any) -> None:
        before = click.get_current_context().find_root().params
        first = before.get("warehouse")
        if first and warehouse and first != warehouse:
            raise click.UsageError(f"--warehouse is {first} and {warehouse}; name one")
        session = CommandSession(warehouse or first, as_json or bool(before.get("as_json")))
        function(session, **rest)

    return run


def command(
    group: click.Group, name: str | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Makes a function a command of the group, with SESSION_OPTIONS as its first argument."""

    def register(function: Callable[..., None]) -> click.Command:
        registered = group.command(name)(with_session(function))
        registered.params += SESSION_OPTIONS
        return registered

    return register


def complete_tables(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The warehouse's table names for the shell; none if its metastore does not run."""
    root = ctx.find_root().params
    session = CommandSession(ctx.params.get("warehouse") or root.get("warehouse"), False)
    try:
        with Metastore.connect(session.existing().metastore, autostart=False) as metastore:
            return sorted(
                record.name for record in metastore.tables() if record.name.startswith(incomplete)
            )
    except AcidError:
        return []


TABLE = click.argument("table", shell_complete=complete_tables)
A_TABLE_OR_ALL = click.argument("table", required=False, shell_complete=complete_tables)


def limit_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option `--limit` with its help text."""
    return click.option(
        "--limit", type=click.IntRange(min=0), default=ROWS, show_default=True, help=text
    )
