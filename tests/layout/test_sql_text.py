"""What a text means is decided by its canonical form, which every parser reads alike."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from acid_platform import InvalidExpression
from acid_platform.layout.sql_text import canonical, for_spark, pieces, sql_string
from acid_platform.predicates.analysis import parsed

LITERALS = {
    r"'it''s'": "it's",
    r"'a' 'b'": "ab",
    "'a' /* x */ \"b\" -- y": "ab",
    r"""'a''b'"c" """: "a'bc",
    r'"it""s"': 'it"s',
    r"""'a""b'""": 'a""b',
    r"""''''""": "'",
    r"r'a\b'": "a\\b",
    r"R'a\'": "a\\",
    r"r'a''b'": "ab",
    r"'\101\0\1\08x'": "A\x001\x008x",
    r"'\400\777'": "400777",
    r"'\u0041\U0001F600'": "A😀",
    r"'\ud83d\ude00'": "😀",
    r"'\u00\u004'": "u00u004",
    r"'\x\q\%\_\Z\b\t\n\r\f\v\a'": "xq\\%\\_\x1a\b\t\n\rfva",
    r"'\''": "'",
    r"'\\'": "\\",
    "'a\nb\x00'": "a\nb\x00",
    "'${x} -- /* '": "${x} -- /* ",
}
"""Spark 4 reads them so by its own settings (tests/engine/test_one_grammar.py asks it)."""
UNCLEAR = ("'a", '"a', "a = `b", "/* a", "/* /* */", "a = ${x}", "a {# b #}", "a = ?", "a; b", "a;")


@pytest.mark.parametrize("literal", LITERALS)
def test_P33_a_literal_has_one_value(literal: str) -> None:
    tree = parsed(literal)
    assert isinstance(tree, exp.Literal)
    assert tree.this == LITERALS[literal]
    assert canonical(literal).strip() == sql_string(LITERALS[literal])


@pytest.mark.parametrize("text", UNCLEAR)
def test_P33_what_other_parsers_would_take_otherwise_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        parsed(text)


def test_P33_a_comment_of_templates_is_none_in_statements_either() -> None:
    """sqlglot would leave it out, and UPDATE would change the rows of the rest."""
    with pytest.raises(InvalidExpression, match="has no meaning"):
        list(pieces("UPDATE t SET a = 1 WHERE b = 1 {# OR true #}", several=True))


def test_P33_a_binary_literal_may_have_a_blank_before_its_quote() -> None:
    assert canonical("a = x /* hex */ 'ff'") == "a = x'ff'"
    assert canonical("`x` 'ff' y 'ff'") == "`x` 'ff' y 'ff'"


@pytest.mark.parametrize("half", ["\ud800", "\\ud800", "\\udc00\\ud800"])
def test_P33_half_a_surrogate_pair_is_no_text(half: str) -> None:
    with pytest.raises(InvalidExpression, match="half of a character"):
        canonical(f"a = '{half}'")


def test_P33_comments_and_blanks_are_blanks() -> None:
    text = "a /* ' /* \" */ */ =\u00a01 -- '\nAND b = 2 -- \\\n still\n"
    assert canonical(text).split() == ["a", "=", "1", "AND", "b", "=", "2"]
    assert canonical("SELECT /*+ BROADCAST(t) */ 1") == "SELECT /*+ BROADCAST(t) */ 1"


def test_P33_a_name_of_other_letters_is_quoted() -> None:
    assert canonical("größe = `Maß`") == "`größe` = `Maß`"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_P33_any_text_survives_as_a_literal(text: str) -> None:
    literal = sql_string(text)
    assert canonical(literal) == literal
    assert parsed(literal).this == text
    assert "${" not in for_spark(literal)
    assert canonical(for_spark(f"a = {literal}")) == f"a = {literal}"
    assert sqlglot.parse_one(literal, dialect="spark").this == text


@given(st.text("'\"\\`rR ux0412ab%_${}-/*\n;é", max_size=12))
def test_P33_a_canonical_text_is_its_own_canonical_text(text: str) -> None:
    try:
        once = canonical(text)
    except InvalidExpression:
        return
    assert canonical(once) == once
    assert for_spark(text) == for_spark(once)
