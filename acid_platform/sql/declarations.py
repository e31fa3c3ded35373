"""Parsing CREATE TABLE and CREATE VIEW; what follows AS is a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from acid_platform.base.table_properties import COMMENT, FIELD_DELIMITER, FILE_FORMAT, NULL_TEXT
from acid_platform.errors import InvalidDefinition, InvalidExpression, UnsupportedStatement
from acid_platform.layout.external_formats import ESCAPE, FIELD, ITEM, KEY, NULL
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import LOCAL_ZONE
from acid_platform.predicates.grammar import HiveSql
from acid_platform.sql.column_lists import ColumnList
from acid_platform.sql.split_dml import Parts, is_query, selected
from acid_platform.sql.statements import CreateExternal, CreateTable, CreateView, RowFormat
from acid_platform.sql.text import Edit, Query, closing, edited, parsed, query, word
from acid_platform.sql.time_travel import refuse_marks

STORED_AS = MappingProxyType(
    {"orc": "orc", "parquet": "parquet", "textfile": "text", "jsonfile": "json", "avro": "avro"}
)
"""STORED AS → the platform's format; formats other than ORC need insert-only tables."""


def parse_create(text: str) -> CreateTable | CreateExternal | CreateView | None:
    """None if it creates something else.

    Raises InvalidDefinition, InvalidExpression, and UnsupportedStatement for clauses that are not
    supported.
    """
    parts = Parts.of(text)
    if parts.comes("CREATE", "TRANSACTIONAL", "TABLE"):  # as every table is
        transactional = parts.tokens[1]
        parts = Parts.of(text[: transactional.start] + text[transactional.end + 1 :])
    declaration = ""
    while not parts.ended:
        declaration += parts.until("AS")
        if not parts.skip("AS") or is_query(parts):
            break
        declaration += " AS "
    defining = None if parts.ended else query(selected(parts.rest()))
    if any(word(parts.tokens, number) == "VIEW" for number in (1, 2, 3)):
        if defining is None:
            raise InvalidExpression("CREATE VIEW … AS needs a SELECT")
        declaration += " AS SELECT 1"
    declaration, columns, keys = _without_details(declaration)
    tree = parsed(declaration, dialect=HiveSql)
    if not isinstance(tree, exp.Create):
        return None
    name = _table_name(tree.this.this if isinstance(tree.this, exp.Schema) else tree.this)
    if tree.kind == "VIEW" and defining is not None:
        refuse_marks(defining.tree)
        return _view(tree, name, defining, columns.comments)
    if tree.kind != "TABLE":
        return None
    if keys.constraints:
        raise UnsupportedStatement(
            f"{name}: {keys.constraints[0]} is about a partition column, which can't have a"
            " constraint"
        )
    if any(isinstance(clause, exp.ExternalProperty) for clause in _properties(tree)):
        if defining is not None or columns.constraints:
            what = columns.constraints[0] if columns.constraints else "AS SELECT"
            raise UnsupportedStatement(
                f"CREATE EXTERNAL TABLE with {what} is not supported; files of others are only read"
            )
        return _external(tree, name, {**columns.comments, **keys.comments})
    if defining is not None and columns.constraints:
        raise InvalidDefinition(f"{name}: CREATE TABLE AS SELECT takes its columns from the query")
    declared = _table(tree, name, defining, {**columns.comments, **keys.comments})
    temporary = any(isinstance(clause, exp.TemporaryProperty) for clause in _properties(tree))
    return replace(declared, constraints=columns.constraints, temporary=temporary)


def _without_details(declaration: str) -> tuple[str, ColumnList, ColumnList]:
    """The text without comments and constraints; the columns, and the partition columns."""
    parts = Parts.of(declaration)
    kinds = (number for number in range(1, 5) if word(parts.tokens, number) in ("TABLE", "VIEW"))
    place = next(kinds, None)
    columns = keys = ColumnList()
    edits: list[Edit] = []
    if place is not None:
        parts.at = place + 1
        parts.skip("IF", "NOT", "EXISTS")
        parts.name()
        columns = _taken_list(parts, edits)
        parts.at = parts.find("PARTITIONED BY")  # sqlglot takes both words for one token
        if parts.skip("PARTITIONED BY"):
            keys = _taken_list(parts, edits)
    return edited(declaration, edits), columns, keys


def _taken_list(parts: Parts, edits: list[Edit]) -> ColumnList:
    """The list in the parentheses that come next, if they do; adds the edit that takes its comments
    and constraints out."""
    if not parts.comes("("):
        return ColumnList()
    end = closing(parts.tokens, parts.at)
    start, stop = parts.tokens[parts.at].end + 1, parts.tokens[end].start
    listed = ColumnList.of(parts.text[start:stop])
    if listed.comments or listed.constraints:
        edits.append(Edit(start, stop, listed.text))
    parts.at = end + 1
    return listed


def _table_name(table: exp.Expr) -> str:
    """`db.t` or `t`, in lower case. Raises InvalidExpression if it is not a name."""
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise InvalidExpression(f"{table.sql('hive')!r} is not the name of a table")
    return ".".join(part.name.lower() for part in table.parts)


def _table(
    tree: exp.Create, name: str, defining: Query | None, comments: Mapping[str, str]
) -> CreateTable:
    if tree.args.get("replace"):
        raise UnsupportedStatement(
            "CREATE OR REPLACE TABLE is not supported; use DROP TABLE, or INSERT OVERWRITE"
        )
    keys: tuple[str, ...] = ()
    clustered: tuple[tuple[str, ...], int] | None = None
    location: str | None = None
    like = ""
    properties: dict[str, str] = {}
    for clause in _properties(tree):
        match clause:
            case exp.TemporaryProperty():
                pass
            case exp.PartitionedByProperty():
                keys = tuple(_column(name, key) for key in clause.this.expressions)
            case exp.ClusteredByProperty() if not clause.args.get("sorted_by"):
                clustered = (
                    tuple(part.name.lower() for part in clause.expressions),
                    int(clause.args["buckets"].name),
                )
            case exp.FileFormatProperty() if clause.this.name.lower() in STORED_AS:
                stored = STORED_AS[clause.this.name.lower()]
                if stored != "orc":
                    properties.setdefault(FILE_FORMAT.name, stored)
            case exp.RowFormatDelimitedProperty() if {
                part for part, value in clause.args.items() if value
            } <= {"fields", "null"}:
                if clause.args.get("fields"):
                    properties[FIELD_DELIMITER.name] = clause.args["fields"].name
                if clause.args.get("null"):
                    properties[NULL_TEXT.name] = clause.args["null"].name
            case exp.LikeProperty() if not clause.expressions:
                like = _table_name(clause.this)
            case exp.LocationProperty():
                location = clause.this.name
            case exp.SchemaCommentProperty():
                properties[COMMENT] = clause.this.name
            case _ if type(clause) is exp.Property:
                properties[clause.this.name] = clause.args["value"].name
            case _:
                raise _unsupported("CREATE TABLE", clause)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    if like:
        _refuse_others(tree, columns or defining)
    if defining is not None and columns:
        raise InvalidDefinition(f"{name}: CREATE TABLE AS SELECT takes its columns from the query")
    if defining is None and not columns and not like:
        raise InvalidDefinition(f"{name}: a table needs columns: CREATE TABLE {name} (id int, …)")
    return CreateTable(
        name,
        ", ".join(_column(name, column) for column in columns),
        keys,
        clustered,
        properties,
        location,
        bool(tree.args.get("exists")),
        defining,
        like,
        comments,
    )


_WITH_LIKE = (
    *(exp.LikeProperty, exp.LocationProperty, exp.SchemaCommentProperty),
    exp.TemporaryProperty,
)


def _refuse_others(tree: exp.Create, rows_or_columns: object) -> None:
    """Refuses what contradicts LIKE, which takes the columns and the format of another table."""
    for clause in _properties(tree):
        if type(clause) is not exp.Property and not isinstance(clause, _WITH_LIKE):
            raise _unsupported("CREATE TABLE … LIKE", clause)
    if rows_or_columns:
        raise UnsupportedStatement(
            "CREATE TABLE … LIKE with columns or a query is not supported; leave LIKE out"
        )


_DELIMITERS = MappingProxyType(
    {
        "fields": FIELD,
        "escaped": ESCAPE,
        "collection_items": ITEM,
        "map_keys": KEY,
        "lines": "line.delim",
        "null": NULL,
    }
)
"""The parts of ROW FORMAT DELIMITED, and the properties of a serde that they are."""


def _external(tree: exp.Create, name: str, comments: Mapping[str, str]) -> CreateExternal:
    keys: tuple[str, ...] = ()
    location = ""
    properties: dict[str, str] = {}
    clauses = [*_properties(tree)]
    for clause in clauses:
        match clause:
            case exp.ExternalProperty() | exp.RowFormatSerdeProperty():
                pass
            case exp.FileFormatProperty() | exp.RowFormatDelimitedProperty():
                pass
            case exp.PartitionedByProperty():
                keys = tuple(_column(name, key) for key in clause.this.expressions)
            case exp.LocationProperty():
                location = clause.this.name
            case exp.SchemaCommentProperty():
                properties[COMMENT] = clause.this.name
            case _ if type(clause) is exp.Property:
                properties[clause.this.name] = clause.args["value"].name
            case _:
                raise _unsupported("CREATE EXTERNAL TABLE", clause)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    if not columns:
        raise InvalidDefinition(f"{name}: an external table needs columns: (id int, …)")
    if not location:
        raise InvalidDefinition(
            f"{name}: an external table needs a LOCATION '…', the directory of its files"
        )
    untyped = [key for key in keys if " " not in key]
    if untyped:
        raise InvalidDefinition(f"{name}: partition column {untyped[0]} needs a type")
    return CreateExternal(
        name,
        ", ".join(_column(name, column) for column in columns),
        keys,
        location,
        row_format("CREATE EXTERNAL TABLE", clauses),
        properties,
        bool(tree.args.get("exists")),
        comments,
    )


def row_format(what: str, clauses: Iterable[exp.Expr]) -> RowFormat:
    """What ROW FORMAT and STORED AS say. Raises UnsupportedStatement for other words in them."""
    stored, serde = "", ""
    options: dict[str, str] = {}
    for clause in clauses:
        match clause:
            case exp.FileFormatProperty() if clause.this.name.lower() in STORED_AS:
                stored = STORED_AS[clause.this.name.lower()]
            case exp.RowFormatDelimitedProperty() if {
                part for part, value in clause.args.items() if value
            } <= {*_DELIMITERS}:
                options |= {
                    _DELIMITERS[part]: value.name for part, value in clause.args.items() if value
                }
            case exp.RowFormatSerdeProperty():
                serde = clause.this.name
                pairs = clause.args.get("serde_properties")
                for each in pairs.expressions if pairs else ():
                    options[each.this.name] = each.args["value"].name
            case exp.FileFormatProperty() | exp.RowFormatDelimitedProperty():
                raise _unsupported(what, clause)
    return RowFormat(stored, serde, options)


def _view(tree: exp.Create, name: str, defining: Query, comments: Mapping[str, str]) -> CreateView:
    properties: dict[str, str] = {}
    for clause in _properties(tree):
        if isinstance(clause, exp.SchemaCommentProperty):
            properties[COMMENT] = clause.this.name
        elif type(clause) is exp.Property:
            properties[clause.this.name] = clause.args["value"].name
        else:
            raise _unsupported("CREATE VIEW", clause)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    return CreateView(
        name,
        defining,
        tuple(column.name.lower() for column in columns),
        bool(tree.args.get("exists")),
        bool(tree.args.get("replace")),
        properties,
        comments,
    )


def _properties(tree: exp.Create) -> Iterator[exp.Expr]:
    properties = tree.args.get("properties")
    return iter(properties.expressions if properties else ())


def _unsupported(what: str, clause: exp.Expr) -> UnsupportedStatement:
    text = clause.sql("hive") or clause.key.removesuffix("property").upper()
    if isinstance(clause, exp.FileFormatProperty):
        formats = ", ".join(name.upper() for name in STORED_AS)
        return UnsupportedStatement(f"{what} with {text} is not supported; formats are {formats}")
    return UnsupportedStatement(f"{what} with {text} is not supported; leave that part out")


def _column(table: str, node: exp.Expr) -> str:
    """`name type`, or only the name for a partition column of CREATE TABLE AS SELECT."""
    if isinstance(node, exp.ColumnDef):
        if node.args.get("constraints"):
            clause = node.args["constraints"][0].sql("hive")
            raise UnsupportedStatement(
                f"column {node.name!r} of {table} with {clause} is not supported; leave that part"
                " out"
            )
        if node.kind is None:
            raise InvalidDefinition(f"column {node.name!r} of {table} needs a type")
        return f"{quoted(node.name)} {_type(node.kind)}"
    if isinstance(node, exp.Identifier):
        return quoted(node.name)
    raise UnsupportedStatement(
        f"{node.sql('hive')!r} in the columns of {table} is not supported; leave that part out"
    )


def _type(kind: exp.DataType) -> str:
    """The text of a type; sqlglot has a word of its own for the one with a time zone."""
    zoned = kind.copy()
    for part in list(zoned.find_all(exp.DataType)):
        if part.is_type("timestampltz"):
            other = exp.DataType(this=exp.DType.USERDEFINED, kind=LOCAL_ZONE)
            if part is zoned:
                return LOCAL_ZONE
            part.replace(other)
    return str(zoned.sql("hive"))
