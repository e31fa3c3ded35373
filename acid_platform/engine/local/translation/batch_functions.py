"""Functions of Spark that DuckDB lacks, in Python: one value for the values of a row. Here are
those of texts, XML and JSON.

DuckDB calls them for rows whose arguments are no NULL, and for these gives NULL. A text in an error
begins as in duckdb_sql.py. Java's rules are those of the methods that Spark calls.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary
from xml.etree import ElementTree

import duckdb
from duckdb.func import FunctionNullHandling


@dataclass(frozen=True, slots=True)
class _Batch:
    compute: Callable[..., Any]
    takes: tuple[str, ...]
    gives: str
    nulls: bool


_F = TypeVar("_F", bound=Callable[..., Any])
BATCHES: dict[str, _Batch] = {}
"""By the name in DuckDB's SQL."""


def batch_of(takes: str, gives: str, name: str = "", nulls: bool = False) -> Callable[[_F], _F]:
    """Registers a function; `nulls`: whether it is called with NULLs, too."""

    def register(compute: _F) -> _F:
        kinds = tuple(takes.split(", "))
        BATCHES[f"acid_{name or compute.__name__.strip('_')}"] = _Batch(
            compute, kinds, gives, nulls
        )
        return compute

    return register


class FailedBatch(ValueError):
    """An error whose text begins as in duckdb_sql.py."""


def _guarded(name: str, batch: _Batch) -> Callable[..., Any]:
    """NULL for a NULL, which DuckDB's own way of that takes for an error; Spark for a failure."""

    @wraps(batch.compute)
    def computed(*values: Any) -> Any:
        if not batch.nulls and None in values:
            return None
        try:
            return batch.compute(*values)
        except FailedBatch:
            raise
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise needs_spark_error(f"{name}, which failed: {error!r}") from error

    return computed


_ADDED: WeakKeyDictionary[duckdb.DuckDBPyConnection, set[str]] = WeakKeyDictionary()
_ADDING = threading.Lock()


def add_functions(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """Makes functions known to all connections of this database: each takes milliseconds, once."""
    from acid_platform.engine.local.translation import batch_numbers  # noqa: F401

    with _ADDING:
        added = _ADDED.setdefault(connection, set())
        for name in BATCHES.keys() & {*names} - added:
            batch = BATCHES[name]
            connection.create_function(
                name,
                _guarded(name, batch),
                [*batch.takes],
                batch.gives,
                null_handling=FunctionNullHandling.SPECIAL,
            )
            added.add(name)


def needs_spark_error(what: str) -> ValueError:
    return FailedBatch(f"[NEEDS_SPARK] {what}")


def no_value(what: str) -> ValueError:
    return FailedBatch(f"[NO_VALUE] {what}")


# --- text -----------------------------------------------------------------------------------------


@batch_of("VARCHAR", "VARCHAR", "reversed_text")
@batch_of("BLOB", "BLOB", "reversed_bytes")
def _reversed(text: Any) -> Any:
    return text[::-1]


@batch_of("VARCHAR, BIGINT, BIGINT", "VARCHAR")
@batch_of("BLOB, BIGINT, BIGINT", "BLOB", "substring_bytes")
def _substring(text: Any, position: int, length: int) -> Any:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + length
    return text[max(0, start) : max(0, end)]


@batch_of("VARCHAR, VARCHAR, BIGINT, BIGINT", "VARCHAR")
@batch_of("BLOB, BLOB, BIGINT, BIGINT", "BLOB", "overlay_bytes")
def _overlay(text: Any, new: Any, position: int, length: int) -> Any:
    length = length if length >= 0 else len(new)
    before = _substring(text, 1, position - 1)
    return before + new + _substring(text, position + length, 1 << 31)


@batch_of("VARCHAR, VARCHAR, BIGINT", "VARCHAR")
def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    if count > 0:
        position = -1
        for _ in range(count):
            position = text.find(delimiter, position + 1)
            if position < 0:
                return text
        return text[:position]
    position = len(text) + 1 - len(delimiter)
    for _ in range(-count):
        position = text.rfind(delimiter, 0, position - 1 + len(delimiter)) if position > 0 else -1
        if position < 0:
            return text
    return text[position + len(delimiter) :]


@batch_of("VARCHAR, VARCHAR, BIGINT", "VARCHAR")
def _split_part(text: str, delimiter: str, part: int) -> str:
    if part == 0:
        raise no_value("[INVALID_INDEX_OF_ZERO] the part 0 of split_part")
    parts = text.split(delimiter) if delimiter else [text]
    index = part - 1 if part > 0 else len(parts) + part
    return parts[index] if 0 <= index < len(parts) else ""


@batch_of("VARCHAR, VARCHAR", "INTEGER")
def _levenshtein(text: str, other: str) -> int:
    if len(text) * len(other) > 10_000_000:
        raise needs_spark_error("levenshtein of long texts")
    before = list(range(len(other) + 1))
    for i, a in enumerate(text, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
        before = row
    return before[-1]


_SOUNDEX = "01230127022455012623017202"


@batch_of("VARCHAR", "VARCHAR")
def _soundex(text: str) -> str:
    if not text:
        return text
    if not text.isascii():
        raise needs_spark_error("soundex of a text with other letters than A to Z")
    first = text[0].upper()
    if not "A" <= first <= "Z":
        return text
    code, last = [first], _SOUNDEX[ord(first) - 65]
    for char in text[1:].upper():
        if not "A" <= char <= "Z":
            last = "0"
            continue
        digit = _SOUNDEX[ord(char) - 65]
        if digit == "7":
            continue
        if digit not in ("0", last):
            code.append(digit)
            if len(code) > 3:
                break
        last = digit
    return "".join(code).ljust(4, "0")


@batch_of("VARCHAR", "BOOLEAN")
def _luhn_check(text: str) -> bool:
    if not text or not all("0" <= char <= "9" for char in text):
        return False
    digits = [int(char) for char in reversed(text)]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


@batch_of("VARCHAR, VARCHAR, VARCHAR, VARCHAR, VARCHAR", "VARCHAR", nulls=True)
def _mask(
    text: str | None, upper: str | None, lower: str | None, digit: str | None, other: str | None
) -> str | None:
    if text is None:
        return None
    if not text.isascii():
        raise needs_spark_error("mask of a text with other characters than those of ASCII")

    def masked(char: str) -> str:
        by = upper if char.isupper() else lower if char.islower() else other
        by = digit if char.isdigit() else by
        return char if by is None else by

    return "".join(map(masked, text))


@batch_of("VARCHAR", "VARCHAR")
def _quoted(text: str) -> str:
    return "'" + text.replace("'", "\\'") + "'"


@batch_of("VARCHAR", "VARCHAR")
def _initcap(text: str) -> str:
    if re.fullmatch("[A-Za-z ]*", text) is None:  # where words begin is a matter of ICU
        raise needs_spark_error("initcap of a text with more than letters of ASCII and blanks")
    return " ".join(word[:1].upper() + word[1:] for word in text.lower().split(" "))


@batch_of("VARCHAR, VARCHAR, BIGINT, BIGINT", "INTEGER")
def _instr(text: str, part: str, start: int, occurrence: int) -> int:
    if not part or not start or occurrence < 1:
        raise needs_spark_error("instr with an empty text, position or occurrence")
    if start > 0:
        position = start - 2
        for _ in range(occurrence):
            position = text.find(part, position + 1)
            if position < 0:
                return 0
        return position + 1
    end = len(text) + start + len(part)
    position = 0
    for _ in range(occurrence):
        position = text.rfind(part, 0, max(0, end))
        if position < 0:
            return 0
        end = position + len(part) - 1
    return position + 1


# --- XML ------------------------------------------------------------------------------------------

_PATH = re.compile(r"/?([A-Za-z_]\w*(?:/[A-Za-z_]\w*)*)(/text\(\)|/@[A-Za-z_]\w*)?", re.ASCII)
_NUMBER = re.compile(r"\s*(-?\d{1,15}(?:\.\d{1,15})?)\s*", re.ASCII)


def _found(xml: str, path: str) -> tuple[list[ElementTree.Element], str]:
    """The elements at a path of names, and what is asked of them."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise needs_spark_error(f"the path {path!r} of XML")
    if re.search(r"<[!?]|&|xmlns|</?[^>\s]*:", xml):
        raise needs_spark_error("XML with entities, declarations, comments or namespaces")
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        raise needs_spark_error("a text that is no XML") from None
    first, *names = match[1].split("/")
    found = [root] if root.tag == first else []
    for name in names:
        found = [child for element in found for child in element if child.tag == name]
    return found, match[2] or ""


def _texts(xml: str, path: str) -> list[str | None]:
    """The value of each node, which an element has not."""
    found, asked = _found(xml, path)
    if not asked:
        return [None] * len(found)
    if asked.startswith("/@"):
        return [element.attrib[asked[2:]] for element in found if asked[2:] in element.attrib]
    parts = ((element.text, *(child.tail for child in element)) for element in found)
    return [part for several in parts for part in several if part]


def _strings(xml: str, path: str) -> list[str]:
    """The text of each node, with all that is inside of it."""
    found, asked = _found(xml, path)
    if asked:
        return [part for part in _texts(xml, path) if part is not None]
    return ["".join(element.itertext()) for element in found]


@batch_of("VARCHAR, VARCHAR", "VARCHAR[]")
def _xpath(xml: str, path: str) -> list[str | None]:
    return _texts(xml, path)


@batch_of("VARCHAR, VARCHAR", "BOOLEAN")
def _xpath_boolean(xml: str, path: str) -> bool:
    return bool(_strings(xml, path))


@batch_of("VARCHAR, VARCHAR", "VARCHAR")
def _xpath_string(xml: str, path: str) -> str:
    return (_strings(xml, path) or [""])[0]


@batch_of("VARCHAR, VARCHAR", "DOUBLE")
def _xpath_number(xml: str, path: str) -> float:
    """A sum, or the first node; a number that is no whole one may be another in Java's XPath."""
    inner = re.fullmatch(r"sum\((.*)\)", path)
    texts = _strings(xml, inner[1]) if inner else _strings(xml, path)[:1]
    numbers = [_NUMBER.fullmatch(text) for text in texts]
    if not numbers or None in numbers or (len(numbers) > 1 and "." in "".join(texts)):
        raise needs_spark_error("XPath of a text that is no plain number")
    return float(sum(float(number[1]) for number in numbers if number))


# --- variants -------------------------------------------------------------------------------------


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def _read(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(word)

    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise needs_spark_error("a text that may be JSON in Java's eyes") from None


@batch_of("VARCHAR", "VARCHAR")
def _variant(text: str) -> str:
    """The JSON of a variant, if it has no key twice."""
    _read(text)
    return text


@batch_of("VARCHAR", "VARCHAR")
def _variant_schema(text: str) -> str:
    return _schema(_read(text))


def _schema(value: Any) -> str:
    match value:
        case None:
            return "VOID"
        case bool():
            return "BOOLEAN"
        case int() if -(1 << 63) <= value < 1 << 63:
            return "BIGINT"
        case str():
            return "STRING"
        case dict() if all(re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII) for key in value):
            fields = (f"{key}: {_schema(value[key])}" for key in sorted(value))
            return f"OBJECT<{', '.join(fields)}>"
        case [first, *others]:
            inner = _schema(first)
            if all(_schema(other) == inner for other in others):
                return f"ARRAY<{inner}>"
    raise needs_spark_error("the schema of such a variant")
