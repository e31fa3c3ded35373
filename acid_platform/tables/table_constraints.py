"""Which constraints may be declared, and what follows from them for writes.

Whoever writes into the table computes the condition of a CHECK (P74). Its time and memory are in
proportion to the row in both engines, and it acts on nothing. So there is a list of functions, none
of which makes a value longer than its arguments, and everything else is refused by name. Regular
expressions are: Spark's go back over a text as often as it has ways to divide it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from acid_platform.base.arguments import require_kind
from acid_platform.errors import (
    InvalidDefinition,
    InvalidExpression,
    NeedsSpark,
    UnknownColumn,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.layout.names import table_name
from acid_platform.layout.sql_text import canonical, quoted
from acid_platform.layout.types import (
    CHAR_TYPES,
    DECLARED_ONLY,
    LOCAL_ZONE,
    Column,
    Constraint,
    ConstraintKind,
    HiveType,
    RowChecks,
    require_columns,
)
from acid_platform.metastore.records import TableRecord
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.values.fitting import LONGEST_SHOWN, constraint_violated

if TYPE_CHECKING:
    from sqlglot import exp

    from acid_platform.base.config import Settings
    from acid_platform.engine.choice import Engines
    from acid_platform.scan.scans import Scan

LONGEST = 10_000
"""Characters of a CHECK or a DEFAULT."""
_MOST_PERCENTS = 3
"""`%` in a pattern of LIKE: each more may multiply the time by the length of the text."""
_LISTED = """
    abs bigint ceil ceiling date decimal double float floor int mod negative pmod positive round
    sign signum smallint sqrt string tinyint try_cast cast
    array_contains cardinality element_at map_contains_key size
    coalesce greatest if ifnull isnan isnotnull isnull least nanvl nullif nvl nvl2
    bit_length btrim char_length character_length contains endswith instr lcase left length
    locate lower ltrim octet_length position right rtrim startswith substr substring
    substring_index translate trim ucase upper
    add_months date_add date_diff date_sub datediff day dayofmonth dayofweek dayofyear extract hour
    last_day minute month months_between quarter second to_date trunc weekday weekofyear year
"""
FUNCTIONS = frozenset(_LISTED.split())


def require_short(what: str, text: str) -> None:
    """Raises InvalidDefinition."""
    if len(text) > LONGEST:
        raise InvalidDefinition(
            f"{what[:200]}…: it has {len(text):,} characters; a CHECK or a DEFAULT has at most"
            f" {LONGEST:,}"
        )


def require_cheap(what: str, tree: exp.Expr) -> None:
    """Raises UnsupportedStatement for a condition that may take more time or memory than its row
    is worth, or does more than compute. `what` is the constraint, for the message."""
    from sqlglot import exp

    from acid_platform.predicates.grammar import CALLED

    operators = (
        *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Case, exp.If, exp.Cast, exp.Between, exp.In),
        *(exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ),
        *(exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape, exp.Any, exp.All, exp.Tuple),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseNot),
        *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift),
        *(exp.BitwiseRightShift, exp.Interval, exp.IntervalSpan, exp.Bracket, exp.Dot),
        *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Var),
        *(exp.DataType, exp.DataTypeParam, exp.TsOrDsToDate),
    )
    for node in tree.walk():
        called = node.meta.get(CALLED)
        if isinstance(node, exp.RegexpLike):
            raise UnsupportedStatement(
                f"{what}: a regular expression may take minutes for one text, in everybody's"
                " INSERT; use LIKE, length, substring or translate"
            )
        of_other = isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func)
        if of_other or not (called in FUNCTIONS if called else isinstance(node, operators)):
            raise UnsupportedStatement(
                f"{what}: a CHECK can't have {called or node.sql('spark')[:60]}: everybody's"
                f" INSERT computes it; its functions are {', '.join(sorted(FUNCTIONS))}"
            )
        if isinstance(node, exp.Like | exp.ILike):
            _require_cheap_pattern(what, node)


def _require_cheap_pattern(what: str, like: exp.Like | exp.ILike) -> None:
    """The pattern is a text, or one of several in `LIKE ANY (…)`. Raises UnsupportedStatement."""
    from sqlglot import exp

    for pattern in like.expression.find_all(exp.Column, exp.Func, exp.Literal):
        if not isinstance(pattern, exp.Literal) or pattern.name.count("%") > _MOST_PERCENTS:
            raise UnsupportedStatement(
                f"{what}: LIKE in a CHECK has a text with at most {_MOST_PERCENTS} % for its"
                " pattern"
            )


_ONE_OF_A_KIND = (ConstraintKind.NOT_NULL, ConstraintKind.DEFAULT)


def declared_constraints(
    table: str,
    columns: Sequence[Column],
    keys: Sequence[Column],
    constraints: Iterable[Constraint],
    present: Sequence[Constraint] = (),
) -> tuple[Constraint, ...]:
    """The `present` constraints and the new ones, which get names if they have none.

    `columns` are the table's, `keys` its partition columns. Raises InvalidDefinition,
    UnknownColumn, UnsupportedStatement for what is not supported.
    """
    given = "a list of Constraint"
    require_kind("constraints", constraints, Iterable, given, InvalidDefinition)
    every = [*present]
    known = KnownColumns(table, columns, keys)
    taken = {other.name for other in every}
    of_columns = {(other.kind, other.columns): other for other in every}
    primary = next(
        (constraint for constraint in every if constraint.kind is ConstraintKind.PRIMARY_KEY), None
    )
    for new in constraints:
        require_kind("one of constraints", new, Constraint, given, InvalidDefinition)
        checked = _checked(known, new)
        other = of_columns.get((checked.kind, checked.columns))
        if checked.kind in _ONE_OF_A_KIND and other is not None:
            raise InvalidDefinition(
                f"{table}: {checked.columns[0]} has constraint {other.name},"
                f" {other.kind.value}, already; drop that first"
            )
        if checked.kind is ConstraintKind.PRIMARY_KEY and primary is not None:
            raise InvalidDefinition(f"{table} has a primary key already, {primary.name}")
        if checked.name in taken:
            raise InvalidDefinition(f"{table} has a constraint {checked.name} already")
        named = replace(checked, name=checked.name or _name(known, checked, taken))
        if named.kind is ConstraintKind.PRIMARY_KEY:
            primary = named
        of_columns[named.kind, named.columns] = named
        taken.add(named.name)
        every.append(named)
    return tuple(every)


class KnownColumns:
    """What is known of a table, by which its constraints are checked one after another."""

    def __init__(self, table: str, columns: Sequence[Column], keys: Sequence[Column]) -> None:
        self.table = table
        self.columns = {column.name: column for column in columns}
        self.keys = {column.name: column for column in keys}
        self.every = (*columns, *keys)
        self.structs = {column.name for column in columns if column.type.kind == "struct"}
        self.with_char = {column.name for column in columns if column.type.has_char}
        self.numbers: dict[str, int] = {}
        """The next number of a name that is taken."""

    def require(self, names: Iterable[str], what: str) -> None:
        """Raises UnknownColumn."""
        unknown = [name for name in names if name not in self.columns and name not in self.keys]
        if unknown:
            require_columns(unknown, self.every, what)


def _name(known: KnownColumns, constraint: Constraint, taken: set[str]) -> str:
    short = known.table.rpartition(".")[2]
    kind = constraint.kind.value.lower().replace(" ", "_")
    usual = "_".join((short, *constraint.columns, kind))
    name = usual
    while name in taken:
        known.numbers[usual] = number = known.numbers.get(usual, 1) + 1
        name = f"{usual}_{number}"
    return name


def _checked(known: KnownColumns, constraint: Constraint) -> Constraint:
    what = f"{known.table}: {constraint}"
    kind = constraint.kind
    require_short(what, constraint.text)
    if kind is ConstraintKind.CHECK:
        constraint = _checked_condition(what, known, constraint)
    names = tuple(name.lower() for name in constraint.columns)
    of_keys = [name for name in names if name in known.keys]
    if of_keys and kind not in DECLARED_ONLY:
        raise UnsupportedStatement(
            f"{what}: {min(of_keys)} is a partition column, which can't have a constraint"
        )
    known.require(names, known.table)
    if kind in DECLARED_ONLY and constraint.enabled:
        raise UnsupportedStatement(
            f"{what}: {kind.value} is declared, not enforced; add DISABLE NOVALIDATE"
        )
    if kind is ConstraintKind.DEFAULT:
        text = _default(what, known.columns[names[0]], constraint.text)
        return replace(constraint, name=constraint.name.lower(), columns=names, text=text)
    return replace(
        constraint,
        name=constraint.name.lower(),
        columns=names,
        parent=table_name(constraint.parent) if constraint.parent else "",
        parent_columns=tuple(name.lower() for name in constraint.parent_columns),
    )


def _checked_condition(what: str, known: KnownColumns, constraint: Constraint) -> Constraint:
    """The constraint with the columns that its condition names.

    The condition has to mean the same for one row alone, at any time and in both engines.
    """
    from sqlglot import exp

    from acid_platform.predicates.analysis import parsed
    from acid_platform.predicates.grammar import AGGREGATES_AS_WRITTEN

    tree = parsed(constraint.text)
    many = (exp.Query, exp.Star, exp.Window, exp.AggFunc, exp.Lambda, exp.Placeholder)
    calls = (call.name.upper() for call in tree.find_all(exp.Anonymous))
    if tree.find(*many) or not AGGREGATES_AS_WRITTEN.isdisjoint(calls):
        raise InvalidDefinition(f"{what}: a CHECK is about the columns of one row alone")
    if any(node.key.startswith(("current", "rand", "uuid", "local")) for node in tree.walk()):
        raise InvalidDefinition(f"{what}: its answer would differ from one time to another")
    require_cheap(what, tree)
    names = []
    for node in tree.find_all(exp.Column):
        first = node.parts[0].name.lower()
        if len(node.parts) > 1 and first not in known.structs:
            raise UnknownColumn(f"{what}: name {node.sql('hive')} without its table")
        names.append(first)
    names = list(dict.fromkeys(names))
    if not names:
        raise InvalidDefinition(f"{what}: a CHECK names no column")
    known.require(names, what)
    for name in names:
        if name in known.with_char:
            raise UnsupportedStatement(
                f"{what}: {known.columns[name]} in a CHECK is not supported; declare it as varchar"
                " or string"
            )
    return replace(constraint, columns=tuple(names), text=canonical(constraint.text).strip())


def _default(what: str, column: Column, text: str) -> str:
    """The text of a default. Raises InvalidDefinition unless it is one value for every row."""
    from sqlglot import exp

    from acid_platform.predicates.analysis import parsed

    try:
        tree = parsed(text)
    except InvalidExpression as error:
        raise InvalidDefinition(f"{what}: {error}") from error
    value = tree
    while isinstance(value, exp.Neg | exp.Paren | exp.Cast):
        value = value.this
    if not isinstance(
        value, exp.Literal | exp.Boolean | exp.Null | exp.CurrentDate | exp.CurrentTimestamp
    ):
        raise InvalidDefinition(
            f"{what}: a DEFAULT is a literal, a CAST of one, CURRENT_DATE or CURRENT_TIMESTAMP"
        )
    if column.type.nested and not isinstance(value, exp.Null):
        raise UnsupportedStatement(f"{what}: {column} can only have DEFAULT NULL")
    limited = isinstance(value, exp.Literal) and column.type.kind in CHAR_TYPES
    if limited and len(value.name.rstrip(" ")) > column.type.sizes[0]:
        raise InvalidDefinition(f"{what}: {value.name!r} is too long for {column}")
    return canonical(text).strip()


def default_sql(column: Column, text: str) -> str:
    """A default as SQL of a value of the column's type."""
    return f"CAST(({text}\n) AS {castable(column.type)})"


def castable(kind: HiveType) -> str:
    """The type as engines cast to it: texts have no length there."""
    if kind.kind in CHAR_TYPES:
        return "string"
    return "timestamp" if kind.kind == LOCAL_ZONE else str(kind)


def row_checks(record: TableRecord) -> RowChecks:
    """What the statements that write into the table have to know of its constraints."""
    if not record.constraints:
        return RowChecks(record.name)
    kinds = {column.name: column for column in columns_of_record(record)[0]}
    of_rows = tuple(constraint for constraint in record.constraints if constraint.of_rows)
    for constraint in of_rows:
        if constraint.kind is ConstraintKind.CHECK:
            _require_still_cheap(record.name, constraint.name, constraint.text)
    return RowChecks(
        record.name,
        of_rows,
        {
            constraint.columns[0]: default_sql(kinds[constraint.columns[0]], constraint.text)
            for constraint in defaults_of(record)
        },
    )


@lru_cache(maxsize=1024)
def _require_still_cheap(table: str, name: str, text: str) -> None:
    """Raises UnsupportedStatement for a condition that was declared before P74 refused it."""
    from acid_platform.predicates.analysis import parsed

    try:
        require_cheap(f"{table}: CHECK {name}", parsed(text))
    except UnsupportedStatement as error:
        raise UnsupportedStatement(
            f"{error}; nothing is written into {table} until ALTER TABLE {table} DROP CONSTRAINT"
            f" {name}"
        ) from None


def defaults_of(record: TableRecord) -> Iterator[Constraint]:
    return (
        constraint
        for constraint in record.constraints
        if constraint.kind is ConstraintKind.DEFAULT and constraint.enabled
    )


# --- asking an engine --------------------------------------------------------------------------

_ROWS = "acid_rows"
"""The name of the table in a query."""


def require_computable(engines: Engines, settings: Settings, record: TableRecord) -> None:
    """Raises InvalidDefinition for a CHECK that is no condition, and a DEFAULT that its column
    can't hold unchanged. What only Spark computes, the first write that needs it refuses."""
    own, _ = columns_of_record(record)
    kinds = {column.name: column for column in own}
    questions = [
        (constraint, _question_of_default(kinds[constraint.columns[0]], constraint))
        for constraint in defaults_of(record)
    ]
    for constraint in record.constraints:
        if constraint.kind is ConstraintKind.CHECK:
            empty = ", ".join(
                f"CAST(NULL AS {castable(kinds[name].type)}) AS {quoted(name)}"
                for name in constraint.columns
            )
            text = (
                f"SELECT coalesce(({constraint.text}\n), true) AS fits FROM (SELECT {empty}) AS r"
            )
            questions.append((constraint, f"{text} WHERE NOT ({constraint.text}\n)"))
    for constraint, question in questions:
        with suppress(NeedsSpark), engines.using("local"):
            try:
                rows = engines.select(question, {}, settings).to_arrow()
            except (InvalidExpression, WrongType) as error:
                raise InvalidDefinition(f"{record.name}: {constraint}: {error}") from error
            if constraint.kind is ConstraintKind.DEFAULT and not rows.column(0)[0].as_py():
                raise InvalidDefinition(
                    f"{record.name}: {constraint}: {kinds[constraint.columns[0]]} can't hold the"
                    " value unchanged"
                )


def _question_of_default(column: Column, constraint: Constraint) -> str:
    value = default_sql(column, constraint.text)
    from sqlglot import exp

    from acid_platform.predicates.analysis import parsed

    literal = parsed(constraint.text)
    is_text = isinstance(literal, exp.Literal) and literal.is_string
    if is_text or column.type.kind in ("float", "double"):
        # A text that is no value of the type fails; a fraction becomes the nearest number.
        return f"SELECT coalesce({value} = {value}, true) AS fits"
    return f"SELECT coalesce({value} = ({constraint.text}\n), true) AS fits"


def require_fulfilled(
    engines: Engines,
    settings: Settings,
    scan: Scan,
    record: TableRecord,
    constraints: Sequence[Constraint],
) -> None:
    """Raises ConstraintViolated for a row of the table that violates one of the constraints."""
    from acid_platform.engine.interface import TableRead  # the gateway needs no engine

    for constraint in constraints:
        if not constraint.of_rows:
            continue
        names = constraint.columns
        text = (
            f"SELECT {', '.join(map(quoted, names))} FROM {_ROWS}"
            f" WHERE NOT coalesce(({constraint.condition}\n), true) LIMIT 1"
        )
        read = TableRead(scan, tuple(names))
        rows = engines.select(text, {_ROWS: read}, settings).to_arrow()
        if rows.num_rows:
            values = ", ".join(
                f"{name}={'NULL' if value is None else str(value)[:LONGEST_SHOWN]}"
                for name, value in rows.to_pylist()[0].items()
            )
            what = RowChecks(record.name).violation(constraint)
            raise constraint_violated(f"{what} that is there, with {values}")
