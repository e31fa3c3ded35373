"""JSON of other people: one object a line, or one array of objects, within bounds (P65)."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import IO, Any

from acid_platform.base.file_bounds import LONGEST_ROW

_HALF = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
_BLOCK = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
Row = tuple[int, dict[str, Any], int]
"""The line in which an object begins, the object, and the letters that it takes."""


class RepeatedName(ValueError):
    """An object has two values of one name."""


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises RepeatedName."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedName(f"an object has two values of the name {twice[:100]!r}; keep one")
    return found


_DECODER = json.JSONDecoder(parse_float=Decimal)
_STRICT = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_object_of)
"""For files that become rows of a table: no value is left out."""


def parsed(text: str) -> Any:
    """The value of a text; a number with a point or an exponent is a Decimal, as it is written.

    Raises ValueError, also for values nested too deeply, numbers of thousands of digits, and half a
    character, such as `"\\ud800"`.
    """
    return _parsed(text, _DECODER)


def _parsed(text: str, decoder: json.JSONDecoder) -> Any:
    value, end = _value_at(text, _blanks_end(text, 0), decoder)
    if (end := _blanks_end(text, end)) < len(text):
        raise ValueError(f"{text[end : end + 40]!r} follows the value")
    return value


def _value_at(text: str, at: int, decoder: json.JSONDecoder) -> tuple[Any, int]:
    try:
        value, end = decoder.raw_decode(text, at)
        if _HALF.search(text, at, end):
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (json.JSONDecodeError, RepeatedName):
        raise
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start]!a} is half a character") from error
    except InvalidOperation as error:
        raise ValueError("a number has an exponent that no type holds") from error
    except ValueError as error:
        raise ValueError("a number has thousands of digits, which no type holds") from error
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    return value, end


def _blanks_end(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def rows(file: IO[bytes]) -> Iterator[Row]:
    """The objects of a file in UTF-8, of which little is held in memory.

    Raises ValueError, which names the line.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", newline="\n")
    line = 0
    try:
        while written := text.readline(LONGEST_ROW + 1):
            line += 1
            if len(written) > LONGEST_ROW:
                raise _too_long()
            if not written.strip():
                continue
            if written.lstrip().startswith("["):
                yield from _Array(text, written, line).rows()
                return
            yield line, _object(_parsed(written, _STRICT)), len(written)
    except UnicodeDecodeError as error:
        raise ValueError(f"after line {line}: it is not UTF-8: {error.reason}") from error
    except ValueError as error:
        if str(error).startswith("line "):
            raise
        raise ValueError(f"line {line}: {error}") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{json.dumps(value, default=str)[:40]} is no object")
    return value


def _too_long() -> ValueError:
    return ValueError(f"it has no end within {LONGEST_ROW >> 20} MB, the most that a row may have")


class _Array:
    """An array of objects, read a block at a time."""

    def __init__(self, text: IO[str], begun: str, line: int) -> None:
        self._text, self._held, self._line = text, begun, line
        self._at = begun.index("[") + 1

    def rows(self) -> Iterator[Row]:
        try:
            first = True
            while not self._skipped("]"):
                if not first and not self._skipped(","):
                    raise ValueError("a comma or ] should follow the object")
                self._skipped("")
                value, size = self._value()
                yield self._line, _object(value), size
                first = False
            if not self._skipped("") or self._more():
                raise ValueError("more follows the array")
        except ValueError as error:
            raise ValueError(f"line {self._line}: {error}") from error

    def _skipped(self, sign: str) -> bool:
        """Whether this sign comes next, which is passed over with the blanks before it; for none,
        whether nothing comes."""
        while (end := _blanks_end(self._held, self._at)) == len(self._held):
            self._move(end)
            if not self._more():
                return not sign
        self._move(end)
        if sign and self._held[end] == sign:
            self._move(end + 1)
            return True
        return False

    def _value(self) -> tuple[Any, int]:
        while True:
            try:
                value, end = _value_at(self._held, self._at, _STRICT)
            except RepeatedName:
                raise
            except ValueError:
                if not self._more():
                    raise
                continue
            size = end - self._at
            self._move(end)
            return value, size

    def _move(self, at: int) -> None:
        self._line += self._held.count("\n", self._at, at)
        self._at = at

    def _more(self) -> bool:
        """Reads on; the held text doubles, so that little of it is parsed more than twice."""
        left = len(self._held) - self._at
        if left > LONGEST_ROW:
            raise _too_long()
        block = self._text.read(max(_BLOCK, left))
        self._held, self._at = self._held[self._at :] + block, 0
        return bool(block)
