"""Window functions whose rows are the same in both engines."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from acid_platform.engine.local.casts import Typed, cast
from acid_platform.engine.local.duckdb_types import INT, duckdb_type, wider
from acid_platform.errors import NeedsSpark

RANKS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
SHIFTS: dict[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead"}
ENDS: dict[type[exp.Expr], str] = {exp.FirstValue: "first_value", exp.LastValue: "last_value"}


def over(
    node: exp.Window, value: Callable[[exp.Expr], Typed], order: Callable[[exp.Ordered], str]
) -> str:
    """DuckDB's OVER clause. Raises NeedsSpark for frames that are not known to be equal."""
    known = ("this", "partition_by", "order", "spec", "over")
    for name, part in node.args.items():
        if part and name not in known:
            raise NeedsSpark(f"{name.upper()} of a window")
    parts = []
    if keys := node.args.get("partition_by"):
        values = [value(key) for key in keys]
        if any(one.fails for one in values):
            raise NeedsSpark("PARTITION BY of an expression that may fail")
        parts.append(f"PARTITION BY {', '.join(one.sql for one in values)}")
    if node.args.get("order"):
        parts.append(f"ORDER BY {', '.join(map(order, node.args['order'].expressions))}")
    if spec := node.args.get("spec"):
        parts.append(_frame(spec))
    return f" OVER ({' '.join(parts)})"


def _frame(spec: exp.WindowSpec) -> str:
    kind = str(spec.args.get("kind", "")).upper()
    bounds = [_bound(spec, "start", kind)]
    if spec.args.get("end") is not None:
        bounds.append(_bound(spec, "end", kind))
    known = ("kind", "start", "start_side", "end", "end_side")
    if kind not in ("ROWS", "RANGE") or any(v and k not in known for k, v in spec.args.items()):
        raise NeedsSpark(f"the window frame {spec.sql('spark')}")
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1] if bounds[1:] else 'CURRENT ROW'}"


def _bound(spec: exp.WindowSpec, name: str, kind: str) -> str:
    bound, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "").upper()
    if isinstance(bound, str):
        return f"{bound} {side}".strip().upper()
    if kind == "ROWS" and isinstance(bound, exp.Literal) and bound.this.isdigit():
        return f"{bound.this} {side}"
    raise NeedsSpark(f"the window frame {spec.sql('spark')}")


def ranked(node: exp.Expr, window: exp.Window, clause: str) -> Typed | None:
    """`row_number()` and the like, which Spark returns as int; None for other functions."""
    if type(node) not in RANKS:
        return None
    if node.args.get("this") or node.expressions or window.args.get("spec"):
        raise NeedsSpark(window.sql("spark"))
    _require_order(window)
    return Typed(f"CAST({RANKS[type(node)]}(){clause} AS INTEGER)", INT)


def shifted(
    node: exp.Expr, window: exp.Window, clause: str, value: Callable[[exp.Expr], Typed]
) -> Typed | None:
    """`lag`, `lead`, `first_value` and `last_value`; None for other functions."""
    name = {**SHIFTS, **ENDS}.get(type(node))
    if name is None:
        return None
    _require_order(window)
    if any(
        part and part_name not in ("this", "offset", "default")
        for part_name, part in node.args.items()
    ):
        raise NeedsSpark(window.sql("spark"))
    taken = value(node.this)
    if taken.fails:
        raise NeedsSpark(f"{name} of an expression that may fail")
    arguments = [taken.sql]
    if type(node) in SHIFTS:
        if window.args.get("spec"):
            raise NeedsSpark(f"{name} with a frame")
        offset = node.args.get("offset")
        if offset is not None:
            if not (isinstance(offset, exp.Literal) and offset.this.isdigit()):
                raise NeedsSpark(f"{name} by anything but a literal")
            arguments.append(offset.this)
        if node.args.get("default") is not None:
            default = value(node.args["default"])
            if wider(taken.type, default.type) != taken.type:
                raise NeedsSpark(f"{name} with a default of another type")
            arguments.append(cast(default, taken.type).sql)
    done = f"{name}({', '.join(arguments)}){clause}"
    return Typed(f"CAST({done} AS {duckdb_type(taken.type)})", taken.type)


def _require_order(window: exp.Window) -> None:
    if not window.args.get("order"):
        raise NeedsSpark("a window function without ORDER BY")
