"""Rows that may differ each time they are read, so that several INSERTs can't share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.errors import UnsupportedStatement
from acid_platform.predicates.grammar import CALLED
from acid_platform.sql.query_tables import bind
from acid_platform.sql.text import Query, parsed

if TYPE_CHECKING:
    from acid_platform.sql.catalog import Catalog

_NODES = (exp.Rand, exp.Randn, exp.Uuid, exp.TableSample, exp.CurrentTimestamp, exp.CurrentDate)
_FUNCTIONS = {
    *("rand", "randn", "random", "uniform", "randstr", "uuid", "shuffle"),
    *("now", "current_timestamp", "current_date", "localtimestamp"),
    *("monotonically_increasing_id", "spark_partition_id", "reflect", "java_method"),
}


def refuse_changing_rows(query: Query, catalog: Catalog) -> None:
    """Raises UnsupportedStatement if the rows of a query, views included, may differ when they are
    read again at the same snapshot."""
    bound = bind(query, "acid_rows", catalog.columns, catalog.current_database, catalog.view_query)
    for node in parsed(bound.text).walk():
        if _may_differ(node):
            raise UnsupportedStatement(
                f"FROM … INSERT … INSERT … reads its rows once for each INSERT, and"
                f" {node.sql('spark').strip()} may give others each time; insert the rows into a"
                " table first"
            )


def _may_differ(node: exp.Expr) -> bool:
    match node:
        case exp.Limit():
            return node.parent is not None and not node.parent.args.get("order")
        case exp.Func():
            return node.meta.get(CALLED) in _FUNCTIONS or isinstance(node, _NODES)
    return isinstance(node, _NODES)
