"""Statements as clients of PostgreSQL send them: where each ends, which are about the session, and
what stands in DuckDB's SQL for the words that only PostgreSQL has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from acid_platform.errors import InvalidExpression

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<name>"(?:[^"]|"")*"|[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*)
    |(?P<other>\$\d+|::|\d[\w.]*|[^'"])""",
    re.VERBOSE | re.DOTALL,
)
_LONGEST = 1 << 20
"""Characters of a message's SQL."""
_SCHEMAS = {"pg_catalog": "", "information_schema": "acid_catalog.information."}
"""What stands before names of these schemas instead: nothing, where the search path finds them."""
_FORMATS = (
    ("YYYY", "%Y"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("MI", "%M"),
    ("SS", "%S"),
    ("MS", "%g"),
    ("US", "%f"),
)
_FORMAT = re.compile(r"'(?:YYYY|MM|DD|HH24|HH12|MI|SS|MS|US|[-/:. T_,])+'")
_OF_FORMATS = {"to_char", "to_date", "to_timestamp"}
_OIDS = {"regclass": "to_regclass", "regtype": "to_regtype", "regnamespace": "to_regnamespace"}
_SPECIAL = {*_SCHEMAS, *_OF_FORMATS, *_OIDS, "collate", "operator"}


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of each token. Raises InvalidExpression for a text without an end."""
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        if found is None:
            raise InvalidExpression(f"a text or name that begins at character {at + 1} has no end")
        at = found.end()
        kind = found.lastgroup or ""
        yield ("string" if kind == "tag" else kind), found[0]


def statements_of(sql: str) -> list[str]:
    """The statements of a script, without blanks and comments around them.

    Raises InvalidExpression.
    """
    if len(sql) > _LONGEST:
        raise InvalidExpression(f"a message may have {_LONGEST:,} characters of SQL")
    parts: list[list[str]] = [[]]
    for kind, text in _tokens(sql):
        if text == ";" and kind == "other":
            parts.append([])
        elif kind == "blank":
            parts[-1].append(" " if parts[-1] else "")
        else:
            parts[-1].append(text)
    return [text for part in parts if (text := "".join(part).strip())]


def words_of(statement: str) -> list[str]:
    """The words of a statement about the session, in lower case, without quotes and commas."""
    return [
        text.lower() if kind != "string" else text[1:-1].replace("''", "'")
        for kind, text in _tokens(statement.replace('"', ""))
        if kind != "blank" and text not in ",="
    ]


def in_duckdbs_words(statement: str) -> str:
    """The statement as DuckDB reads it: without names of PostgreSQL's own schemas, operators with a
    schema and the collation `default`, and with DuckDB's formats of dates.

    Raises InvalidExpression.
    """
    lowered = statement.lower()
    if not any(word in lowered for word in _SPECIAL):
        return statement
    tokens = [*_tokens(statement)]
    texts = [text for _, text in tokens]
    solid = [spot for spot, (kind, _) in enumerate(tokens) if kind != "blank"]
    names = {text.lower() for kind, text in tokens if kind == "name"}

    def drop(first: int, last: int) -> None:
        for spot in solid[first:last]:
            texts[spot] = ""

    at = 0
    while at < len(solid):
        kind, text = tokens[solid[at]]
        after = [tokens[spot][1].lower().strip('"') for spot in solid[at + 1 : at + 5]] + [""] * 4
        name = text.lower().strip('"') if kind == "name" else ""
        ahead = 1
        if name in _SCHEMAS and after[0] == ".":
            texts[solid[at]], texts[solid[at + 1]] = _SCHEMAS[name], ""
            ahead = 2
        elif name == "operator" and after[:3] == ["(", "pg_catalog", "."]:
            close = next((n for n in range(at, len(solid)) if tokens[solid[n]][1] == ")"), at)
            drop(at, at + 4)
            drop(close, close + 1)
            ahead = 4
        elif name == "collate" and "default" in (after[0], after[2]):
            ahead = 2 if after[0] == "default" else 4
            drop(at, at + ahead)
        elif (kind == "string" or text[:1] == "$") and after[0] == "::":
            words = 3 if after[1] == "pg_catalog" else 1
            if (made := _OIDS.get(after[words])) is not None:
                texts[solid[at]] = f"{made}({text})"
                ahead = words + 2
                drop(at + 1, at + ahead)
        elif name == "cast" and after[0] == "(":
            made, first, last = _object_cast([tokens[spot][1].lower() for spot in solid[at:]])
            if made:
                texts[solid[at]] = made
                drop(at + first, at + last)
        elif kind == "string" and names & _OF_FORMATS and _FORMAT.fullmatch(text):
            for theirs, ours in _FORMATS:
                text = text.replace(theirs, ours)
            texts[solid[at]] = text
        at += ahead
    return "".join(texts)


def _object_cast(words: Sequence[str]) -> tuple[str, int, int]:
    """What finds the number of a table or type instead of CAST(x AS regclass) and the like, and
    where `AS regclass` begins and ends; an empty text for another cast."""
    depth = 0
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if word == "as" and depth == 1:
            end = at + 4 if words[at + 1 : at + 3] == ["pg_catalog", "."] else at + 2
            return _OIDS.get(words[end - 1] if end <= len(words) else "", ""), at, end
        if depth < 1 < at:
            break
    return "", 0, 0


def with_types(statement: str, kinds: Sequence[str], null: bool = False) -> str:
    """The statement with a cast of each parameter to its type; what is UNKNOWN is a text.

    `null`: of NULL instead of each, in a statement of the same columns without parameters.

    Raises InvalidExpression."""
    texts = []
    for _, text in _tokens(statement):
        if re.fullmatch(r"\$\d{1,5}", text) and 0 < int(text[1:]) <= len(kinds):
            kind = kinds[int(text[1:]) - 1]
            value = "NULL" if null else text
            text = f"CAST({value} AS {'VARCHAR' if kind == 'UNKNOWN' else kind})"
        texts.append(text)
    return "".join(texts)
