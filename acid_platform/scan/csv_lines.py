"""Fields of lines as Hive's OpenCSVSerde reads them, with the quotes and escapes of opencsv 2.3."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.errors import CorruptFile
from acid_platform.layout.external_formats import ESCAPED_BY, QUOTE, SEPARATOR
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column
from acid_platform.storage.arrow_numpy import values_of


@dataclass(frozen=True, slots=True)
class CsvLines:
    """How a line is divided. A row is one line, also between quotes."""

    separator: str
    quote: str
    escape: str
    path: str

    @classmethod
    def of(cls, stored: FileFormat, path: str) -> CsvLines:
        options = stored.options
        return cls(options[SEPARATOR], options[QUOTE], options[ESCAPED_BY], path)

    def columns(
        self, lines: pa.StringArray, columns: Sequence[Column], needed: Collection[str]
    ) -> dict[str, pa.Array]:
        """The needed columns, which are strings; NULL where a line has no such field.

        Raises CorruptFile for a quote that is not closed in its line.
        """
        special = (pc.match_substring(lines, one) for one in (self.quote, self.escape))
        if any(pc.any(lines_with_it).as_py() for lines_with_it in special):
            fields = [list(self._fields(line)) if line else [] for line in lines.to_pylist()]
            split = pa.array(fields, pa.list_(pa.string()))
        else:
            split = pc.split_pattern(lines, self.separator)
        ends = values_of(split.offsets)
        sizes = np.where(values_of(pc.equal(lines, "")), 0, np.diff(ends))
        return {
            column.name: split.values.take(
                pa.array(ends[:-1].astype(np.int64) + place, mask=place >= sizes)
            )
            for place, column in enumerate(columns)
            if column.name in needed
        }

    def _fields(self, line: str) -> Iterator[str]:
        if self.quote not in line and self.escape not in line:
            yield from line.split(self.separator)
            return
        field: list[str] = []
        quoted, at = False, 0
        while at < len(line):
            one, after = line[at], line[at + 1 : at + 2]
            if one == self.escape:
                if quoted and after and after in (self.quote, self.escape):
                    field.append(after)
                    at += 1
            elif one == self.quote:
                if quoted and after == self.quote:
                    field.append(after)
                    at += 1
                else:
                    inside = after and after != self.separator and line[at - 1] != self.separator
                    if at > 2 and inside:  # a quote within a field is a part of it
                        if field and not "".join(field).strip():
                            field.clear()
                        else:
                            field.append(one)
                    quoted = not quoted
            elif one == self.separator and not quoted:
                yield "".join(field)
                field.clear()
            else:
                field.append(one)
            at += 1
        if quoted:
            raise CorruptFile(
                f"{self.path}: a quote is not closed in its line, and each line is a row:"
                f" {line[:80]!r}"
            )
        yield "".join(field)
