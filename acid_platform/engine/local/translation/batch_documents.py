"""As batch_functions.py: XML and JSON."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

from acid_platform.engine.local.translation.batch_functions import batch_of, needs_spark_error

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


# --- vectors --------------------------------------------------------------------------------------


def _whole(*vectors: list[float]) -> None:
    """Raises unless all sums of products are exact: in which order Spark adds them is unknown."""
    first = vectors[0]
    for vector in vectors:
        if len(vector) != len(first) or not vector:
            raise needs_spark_error("vectors that are empty or not of one length")
        if not all(x is not None and abs(x) < 2048 and x == int(x) for x in vector):
            raise needs_spark_error("vectors of anything but small whole numbers")
    if sum(max(abs(x) for x in each) ** 2 for each in zip(*vectors, strict=True)) * 4 >= 1 << 24:
        raise needs_spark_error("vectors of many numbers")


@batch_of("FLOAT[], FLOAT[]", "FLOAT")
def _vector_product(a: list[float], b: list[float]) -> float:
    _whole(a, b)
    return sum((x * y for x, y in zip(a, b, strict=True)), 0.0)


@batch_of("FLOAT[], FLOAT[]", "FLOAT")
def _vector_distance(a: list[float], b: list[float]) -> float:
    _whole(a, b)
    return float(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5)


@batch_of("FLOAT[], FLOAT", "FLOAT")
def _vector_norm(vector: list[float], degree: float) -> float:
    _whole(vector)
    if degree not in (1, 2, float("inf")):
        raise needs_spark_error("a norm of another degree than 1, 2 and infinity")
    if degree == 2:
        return float(sum(x * x for x in vector) ** 0.5)
    return float(sum(map(abs, vector)) if degree == 1 else max(map(abs, vector)))


@batch_of("FLOAT[], FLOAT", "FLOAT[]")
def _vector_normalized(vector: list[float], degree: float) -> list[float]:
    norm = _vector_norm(vector, degree)
    if norm == 0 or norm != int(norm):
        raise needs_spark_error("a vector whose norm is no whole number")
    return [x / norm for x in vector]
