"""Rows of Hive's delimited text: LazySimpleSerDe's rules, from lines to arrays of the columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.layout.external_formats import ESCAPE, NULL, separators
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column, HiveType
from acid_platform.scan.number_texts import typed_texts
from acid_platform.storage.arrow_numpy import from_numpy, values_of
from acid_platform.storage.arrow_types import arrow_type

_TEXTS = ("string", "char", "varchar")


@dataclass(frozen=True, slots=True)
class DelimitedText:
    """How lines are divided: at one character per level of nesting."""

    separators: str
    null: str
    """The text that stands for NULL, at every level; it is compared before escapes are undone."""
    escape: str = ""
    """The character that takes the meaning from the one after it; empty: there is none."""

    @classmethod
    def of(cls, stored: FileFormat) -> DelimitedText:
        return cls(separators(stored), stored.options[NULL], stored.options[ESCAPE])

    def columns(
        self, lines: pa.StringArray, columns: Sequence[Column], needed: Collection[str]
    ) -> dict[str, pa.Array]:
        """The needed columns of lines, by name. Columns that a line lacks are NULL, and what it has
        beyond them is left out."""
        last = max((i for i, one in enumerate(columns) if one.name in needed), default=-1)
        if last < 0:
            return {}
        fields = self._split(lines, self.separators[0], last + 1)
        return {
            column.name: self._value(self._part(fields, place), column.type, 1)
            for place, column in enumerate(columns)
            if column.name in needed
        }

    def _value(self, texts: pa.StringArray, kind: HiveType, level: int) -> pa.Array:
        """The values of texts, in which the separator of this level is the next to split at."""
        valid = texts.is_valid() if texts.null_count else None
        match kind.kind:
            case "array":
                parts = self._elements(texts, self.separators[level])
                child = self._value(self._nulls(parts.values), kind.children[0][1], level + 1)
                mask = None if valid is None else pc.invert(valid)
                return pa.ListArray.from_arrays(parts.offsets, child, mask=mask)
            case "map":
                return self._map(texts, kind, level)
            case "struct":
                fields = self._split(texts, self.separators[level], len(kind.children))
                children = [
                    self._value(self._part(fields, place), child, level + 1)
                    for place, (_, child) in enumerate(kind.children)
                ]
                mask = None if valid is None else pc.invert(valid)
                return pa.StructArray.from_arrays(
                    children, fields=list(arrow_type(kind)), mask=mask
                )
            case text if text in _TEXTS:
                return self._unescaped(texts)
        return typed_texts(texts, kind)

    def _map(self, texts: pa.StringArray, kind: HiveType, level: int) -> pa.MapArray:
        """Maps, in which the first entry with a key counts; one without a key is left out."""
        (_, key), (_, item) = kind.children
        entries = self._elements(texts, self.separators[level])
        pairs = self._split(entries.values, self.separators[level + 1], 1, rest=True)
        keys = self._value(self._part(pairs, 0), key, level + 2)
        items = self._value(self._part(pairs, 1), item, level + 2)
        ends = values_of(entries.offsets)
        counts = [0]
        places: list[int] = []
        listed = keys.to_pylist()
        for begin, end in pairwise(ends):
            first: dict[object, int] = {}
            for place in range(begin, end):
                if listed[place] is not None:
                    first.setdefault(listed[place], place)
            places += first.values()
            counts.append(len(places))
        chosen = pa.array(places, pa.int64())
        return pa.MapArray.from_arrays(
            pa.array(counts, pa.int32()),
            keys.take(chosen),
            items.take(chosen),
            mask=texts.is_null() if texts.null_count else None,
        )

    # --- splitting -----------------------------------------------------------------------------

    def _elements(self, texts: pa.StringArray, separator: str) -> pa.ListArray:
        """The parts of each text; none of an empty one, and of NULL."""
        parts = self._split(pc.fill_null(texts, ""), separator)
        empty = values_of(pc.equal(pc.fill_null(texts, ""), ""))
        sizes = np.diff(values_of(parts.offsets))
        there = np.repeat(~empty, sizes)
        ends = np.concatenate(([0], np.cumsum(np.where(empty, 0, sizes)))).astype(np.int32)
        return pa.ListArray.from_arrays(from_numpy(ends), parts.flatten().filter(from_numpy(there)))

    def _split(
        self, texts: pa.StringArray, separator: str, most: int = -1, rest: bool = False
    ) -> pa.ListArray:
        """The parts of each text, none of NULL. Only the first `most` of them are sure to be whole;
        with `rest`, one more is what follows them."""
        if self.escape and pc.any(pc.match_substring(texts, self.escape)).as_py():
            parts = (
                [] if text is None else [*self._parts(text, separator, most if rest else -1)]
                for text in texts.to_pylist()
            )
            return pa.array(list(parts), pa.list_(pa.string()))
        split = pc.split_pattern(texts, separator, max_splits=most if most > 0 else None)
        if not split.null_count and not split.offset:
            return split
        sizes = np.where(values_of(split.is_valid()), np.diff(values_of(split.offsets)), 0)
        ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        return pa.ListArray.from_arrays(from_numpy(ends), split.flatten())

    def _parts(self, text: str, separator: str, most: int) -> Iterator[str]:
        begin = at = 0
        while at < len(text):
            if text[at] == self.escape:
                at += 2
                continue
            if text[at] == separator and most:
                yield text[begin:at]
                begin, most = at + 1, most - 1
            at += 1
        yield text[begin:]

    def _part(self, parts: pa.ListArray, place: int) -> pa.StringArray:
        """The part at a place of each list, NULL if there is none or it stands for NULL."""
        ends = values_of(parts.offsets)
        there = place < np.diff(ends)
        at = pa.array(ends[:-1].astype(np.int64) + place, mask=~there)
        return self._nulls(parts.values.take(at))

    def _nulls(self, texts: pa.StringArray) -> pa.StringArray:
        return pc.if_else(pc.equal(texts, self.null), pa.scalar(None, pa.string()), texts)

    def _unescaped(self, texts: pa.StringArray) -> pa.StringArray:
        if not self.escape or not pc.any(pc.match_substring(texts, self.escape)).as_py():
            return texts
        return pa.array([text and self._meant(text) for text in texts.to_pylist()], pa.string())

    def _meant(self, text: str) -> str:
        meant, at = [], 0
        while at < len(text):
            if text[at] == self.escape and at + 1 < len(text):
                at += 1
                meant.append({"r": "\r", "n": "\n"}.get(text[at], text[at]))
            else:
                meant.append(text[at])
            at += 1
        return "".join(meant)
