"""SQL of whoever wrote a view or a condition calls no method of Java (P67)."""

from __future__ import annotations

import pytest

from acid_platform.errors import AcidError, UnsupportedStatement
from acid_platform.predicates.analysis import parsed as condition
from acid_platform.sql.parse import parse
from acid_platform.sql.text import query


@pytest.mark.parametrize("name", ["reflect", "java_method", "try_reflect", "REFLECT", "`reflect`"])
def test_P67_no_text_of_sql_calls_a_method_of_java(name: str) -> None:
    call = f"{name}('java.lang.System', 'load', '/theirs.so')"
    for text in (
        f"SELECT {call} AS y FROM t",
        f"SELECT * FROM (SELECT 1 WHERE {call} = 'x')",
        f"SELECT * FROM t LATERAL VIEW explode(array({call})) AS y",
        f"VALUES ({call})",
        f"SELECT upper( {name} ('java.lang.System', 'load'))",
    ):
        with pytest.raises(UnsupportedStatement, match="would run a method of Java"):
            query(text)
    for qualified in (f"builtin.{call}", f"system.builtin.{call}"):
        with pytest.raises(AcidError):
            query(f"SELECT {qualified}")
    for statement in (
        f"INSERT INTO t SELECT {call}",
        f"DELETE FROM t WHERE x = {call}",
        f"CREATE VIEW v AS SELECT {call} AS y",
    ):
        with pytest.raises(UnsupportedStatement, match="would run a method of Java"):
            parse(statement)
    with pytest.raises(AcidError):
        condition(f"x = {call}")
    assert query("SELECT reflect, t.java_method FROM t").tree
