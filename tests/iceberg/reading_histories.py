"""Random histories of ten tables, and the rows that each reader of Iceberg and DuckLake finds."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from acid_platform import Warehouse
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf
from acid_platform.services import cleaner
from tests.iceberg.asked_readers import Asked, Finds
from tests.iceberg.found_rows import Condition, Row, as_pyiceberg, texts
from tests.iceberg.histories import History

KINDS = (
    *(("", False, "7d"), ("p int, q string", False, "7d"), ("p varchar(8)", False, "7d")),
    *(("p date, q boolean", False, "7d"), ("p decimal(5,2), q tinyint", False, "7d")),
    *(("", True, "7d"), ("p bigint", True, "7d"), ("p decimal(38,10)", False, "0")),
    *(("p timestamp", False, "0"), ("p date, q varchar(8)", True, "0")),
)
"""The partition columns of each table, whether it is insert-only, and how long its past is kept."""
_EVERY, _OLDER = 10, 3
_NOT_TOLD = (
    "does not exist at version",
    "Snapshot not found",
    "snapshot ID not found",
    "snapshot with id",
    "No snapshot",
    "snapshot with ID",
    "Cannot find snapshot",
    "snapshot ID does not exist",
)
"""What readers say of a snapshot of an insert-only table whose columns had other names then."""
_LEFT_OUT = {("DuckDB by DuckLake", "p timestamp")}
"""Tables that a reader is not told of: DuckDB would not find the values in the paths."""

_BY_PYICEBERG = ("pyiceberg", "Polars")
"""Polars reads by pyiceberg where a file of deleted positions is about several files of rows."""

Loads = Callable[[Mapping[str, str]], Mapping[str, Finds]]
"""Readers that have loaded tables, of which it gets the metadata files."""


class ReadHistories:
    """Tables that change, and what readers have found."""

    def __init__(
        self,
        warehouse: Warehouse,
        seed: int,
        readers: Sequence[Loads],
        log: Callable[[str], object] = lambda _: None,
        kinds: Sequence[tuple[str, bool, str]] = KINDS,
        tables: int | None = None,
    ) -> None:
        """`tables`: so many of them are read after each tenth commit; None: all."""
        self._warehouse, self._readers, self._log = warehouse, readers, log
        self._dice, self.seed = random.Random(seed), seed
        self._kinds = {f"i.t{number}": kind for number, kind in enumerate(kinds)}
        self._histories = {
            name: History(warehouse, name, seed * 100 + number, *kind)
            for number, (name, kind) in enumerate(self._kinds.items())
        }
        self._most = tables or len(kinds)
        self._expected: dict[tuple[str, int], tuple[Asked, list[Row]]] = {}
        self.read = Counter[str]()
        """How many snapshots each reader read."""
        self.filtered = Counter[str]()
        """How many of these reads had a condition."""
        self.not_told = Counter[str]()
        """Snapshots of insert-only tables whose columns had other names then."""
        self.steps = Counter[str]()
        self.wrong: list[str] = []

    def commits(self, count: int) -> None:
        done, checked = 0, 0
        while done < count:
            name = self._dice.choice([*self._histories])
            kind = self._histories[name].step()
            done += bool(kind)
            self.steps[kind] += bool(kind)
            if done % _EVERY == 0 and done > checked:
                checked = done
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._check(done)

    def _check(self, done: int) -> None:
        self._expected = {}
        turn = done // _EVERY % 3
        if turn == 1:  # what is not kept goes, and no reader may be told of it
            self._clean()
        names = [name for name, kind in self._kinds.items() if turn < 2 or kind[2] != "0"]
        chosen = self._dice.sample(names, min(self._most, len(names)))
        asked = [(name, moment, now) for name in chosen for moment, now in self._moments(name)]
        files = {name: self._warehouse.export_iceberg(name).metadata for name in self._histories}
        loaded = {name: find for load in self._readers for name, find in load(files).items()}
        if turn == 2:  # who has loaded tables whose past is kept may go on
            self._clean()
        for reader, find in loaded.items():
            for name, moment, now in asked:
                if (reader, self._kinds[name][0]) not in _LEFT_OUT:
                    self._compare(reader, find, name, moment, now)
        self._log(f"{done} commits: {dict(self.read)}, wrong: {len(self.wrong)}")

    def _clean(self) -> None:
        cleaner.run(self._warehouse.metastore)
        self.steps["clean"] += 1

    def _moments(self, name: str) -> list[tuple[int, bool]]:
        """Some snapshots of the table, and whether each is the newest."""
        *past, newest = [
            each.moment for each in self._warehouse.metastore.call(ops.GetCommits(name))
        ]
        older = self._dice.sample(past, min(_OLDER, len(past)))
        return [*((moment, False) for moment in older), (newest, True)]

    def _ours(self, name: str, moment: int) -> tuple[Asked, list[Row]]:
        if (name, moment) not in self._expected:
            table = self._histories[name].table.to_arrow(as_of=AsOf(moment=moment))
            asked = Asked(name, moment, None, table.schema)
            self._expected[name, moment] = asked, asked.shaped(table.to_pylist())
        return self._expected[name, moment]

    def _compare(self, reader: str, find: Finds, name: str, moment: int, now: bool) -> None:
        asked, rows = self._ours(name, moment)
        self._ask(reader, find, asked, rows)
        condition = Condition.chosen(self._dice, rows) if now else None
        if condition is not None:
            asked = Asked(name, moment, condition, asked.schema)
            self._ask(reader, find, asked, condition.fulfilled(rows))

    def _ask(self, reader: str, find: Finds, asked: Asked, rows: list[Row]) -> None:
        where = f"{reader} {asked}"
        try:
            found = find(asked)
        except Exception as error:
            if self._histories[asked.name].insert_only and _is_not_told(error):
                self.not_told[reader] += 1
                return
            self.wrong.append(f"{where}: {type(error).__name__}: {str(error)[:300]}")
        else:
            self.read[reader] += 1
            self.filtered[reader] += asked.condition is not None
            right = [rows]
            if reader in _BY_PYICEBERG:
                right.append(as_pyiceberg(rows, asked.schema))
            if difference := _difference(found, *right):
                self.wrong.append(f"{where}: {difference}")
        if self.wrong and self.wrong[-1].startswith(where):
            self._log(self.wrong[-1])

    def page(self, commits: int) -> str:
        """What was found, in Markdown."""
        lines = [
            f"{commits} commits on {len(self._histories)} tables, seed {self.seed}:"
            f" {', '.join(f'{kind} {count}' for kind, count in sorted(self.steps.items()))}.",
            "",
            "| reader | reads | of these with a condition | not told | wrong |",
            "|---|---|---|---|---|",
        ]
        for reader, count in self.read.items():
            wrong = sum(each.startswith(f"{reader} ") for each in self.wrong)
            some, not_told = self.filtered[reader], self.not_told[reader]
            lines.append(f"| {reader} | {count} | {some} | {not_told} | {wrong} |")
        return "\n".join([*lines, "", *self.wrong]).rstrip() + "\n"


def _difference(found: list[Row], *right: list[Row]) -> str:
    """A column of a row whose values differ; empty if the rows are those of one of the lists."""
    if any(texts(found) == texts(rows) for rows in right):
        return ""
    if len(found) != len(right[0]):
        return f"{len(found)} rows instead of {len(right[0])}"
    known = set(texts(right[0]))
    row = next(row for row in found if texts([row])[0] not in known)
    same = [each for each in right[0] if each["id"] == row["id"]]
    differing = {
        name: (value, [each.get(name) for each in same])
        for name, value in row.items()
        if all(texts([{name: value}]) != texts([{name: each.get(name)}]) for each in same)
    }
    return f"of id {row['id']}, instead of these values: {differing or same}"


def _is_not_told(error: Exception) -> bool:
    return any(each in str(error) for each in _NOT_TOLD)
