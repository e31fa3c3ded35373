"""The lexical grammar of SQL texts: one reading of literals and comments for every parser.

Spark's parser, Hive's and sqlglot's differ in what `'it''s'`, `r'\\d'`, `'\\101'` and nested
comments mean, and Spark's also depends on settings of the session. `canonical` rewrites a text so
that all of them read it alike; what a text means is what Spark reads with its own settings:

- `'it''s'` is `it's`, and literals side by side are one: `'a' "b"` is `ab`;
- a backslash escapes as Spark's does, but in `r'…'`;
- a comment ends where the first comment that it opened ends, and is a blank.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from acid_platform.base.arguments import has_half_character, refuse_half_characters
from acid_platform.errors import InvalidExpression

_PIECE = re.compile(
    r"""(?P<line>--(?:\\\n|[^\r\n])*+)
      | (?P<comment>/\*)
      | (?P<raw>[rR](?:'[^']*+'|"[^"]*+"))
      | (?P<text>'(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+")
      | (?P<name>`(?:[^`]|``)*+`)
      | (?P<word>\w+)
      | (?P<blank>\s+)
      | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT_BRACKETS = re.compile(r"/\*(?!\+)|\*/")
_ESCAPES = {
    quote: re.compile(
        rf"\\(?:u([\da-fA-F]{{4}})|U([\da-fA-F]{{8}})|([01][0-7]{{2}})|(.))|{quote}({quote})",
        re.DOTALL | re.ASCII,
    )
    for quote in "'\""
}
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ESCAPED |= {"%": "\\%", "_": "\\_"}  # LIKE needs the backslash
_PLAIN = re.compile(r"[\w \n\t.,()<>=+*%`-]*+", re.ASCII)
"""Matches texts that are canonical already, if they have no `--`."""
_WITHOUT_MEANING = "{}#@?\\$;"


def sql_string(text: str) -> str:
    """The text as a string literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted(name: str) -> str:
    """The name of a column as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def canonical(text: str) -> str:
    """The text with its literals, comments and blanks in the form that every parser reads alike.

    Raises InvalidExpression for a quote or a comment that is not closed, for `${…}` outside of
    quotes and other characters that have no meaning there, and for half a surrogate pair.
    """
    if _PLAIN.fullmatch(text) and "--" not in text:
        return text
    return "".join(pieces(text))


def for_spark(text: str) -> str:
    """The canonical text, without any `${` in a literal: Spark's parser would replace it.

    What remains of `${` stands in the name of a column. Raises as `canonical`.
    """
    if _PLAIN.fullmatch(text) and "--" not in text:
        return text
    return "".join(
        piece.replace("${", "\\u0024{") if piece.startswith("'") else piece
        for piece in pieces(text)
    )


def pieces(text: str, several: bool = False) -> Iterator[str]:
    """The pieces of the canonical text; a piece that begins with a quote is a whole literal.

    `several`: semicolons, and what else has no meaning in an expression, are pieces too. Raises as
    `canonical`.
    """
    literal: list[str] = []
    blanks, before = "", ""
    position = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        assert piece is not None  # whatever it is, the last alternative takes it
        position = piece.end()
        if piece["raw"] or piece["text"]:
            if not literal:
                yield "" if before == "X" else blanks  # X 'FF' is X'FF', a binary literal
                blanks = ""
            literal.append(_value(piece))
        elif piece["line"] or piece["blank"]:
            blanks = "\n" if "\n" in blanks + piece[0] else " "
        elif piece["comment"] and not (before == "SELECT" and text.startswith("+", position)):
            position = _end_of_comment(text, position)
            blanks = blanks or " "
        else:
            if literal:
                yield sql_string(_whole("".join(literal)))
                literal = []
            yield blanks
            blanks = ""
            before = piece[0].upper()
            comment = text.startswith("{#", piece.start())  # for sqlglot alone
            yield piece[0] if several and piece["other"] and not comment else _allowed(piece)
    if literal:
        yield sql_string(_whole("".join(literal)))
    yield blanks


def _value(piece: re.Match[str]) -> str:
    if piece["raw"]:
        return piece["raw"][2:-1]
    return _ESCAPES[piece["text"][0]].sub(_unescaped, piece["text"][1:-1])


def _unescaped(escape: re.Match[str]) -> str:
    half_or_whole, whole, octal, other, quote = escape.groups()
    if other or quote:
        return quote or _ESCAPED.get(other, other)
    code = int(octal, 8) if octal else int(half_or_whole or whole, 16)
    if code > sys.maxunicode:
        raise InvalidExpression(f"{escape[0]} is no character")
    return chr(code)


def _whole(text: str) -> str:
    """The text, in which two halves of a surrogate pair are one character."""
    if has_half_character(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        refuse_half_characters(text)
    return text


def _end_of_comment(text: str, start: int) -> int:
    depth = 1
    for bracket in _COMMENT_BRACKETS.finditer(text, start):
        depth += 1 if bracket[0] == "/*" else -1
        if depth == 0:
            return bracket.end()
    raise InvalidExpression(f"a comment is not closed: {text[start - 2 :]!r}")


def _allowed(piece: re.Match[str]) -> str:
    """The piece as it is, or a name of other letters in the quotes that Spark wants for it."""
    token = _whole(piece[0])
    if piece["word"] and not token.isascii():
        return quoted(token)
    if piece["other"] in ("'", '"', "`"):
        raise InvalidExpression(f"a quote is not closed: {piece.string[piece.start() :]!r}")
    if piece["other"] and token in _WITHOUT_MEANING:
        if piece.string.startswith("${", piece.start()):
            raise InvalidExpression(
                f"{piece.string[piece.start() :]!r} begins with a variable, and no variable is"
                " replaced in SQL; write its value"
            )
        raise InvalidExpression(f"{token!r} has no meaning in SQL outside of quotes")
    return token
