"""Translating sqlglot's trees of CREATE TABLE and CREATE VIEW into declarations."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from sqlglot import exp

from acid_platform.base.table_properties import FIELD_DELIMITER, FILE_FORMAT, NULL_TEXT
from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.layout.types import LOCAL_ZONE
from acid_platform.sql.statements import CreateTable, CreateView
from acid_platform.sql.text import Query

STORED_AS = MappingProxyType(
    {
        "orc": "orc",
        "parquet": "parquet",
        "textfile": "text",
        "jsonfile": "json",
        "avro": "avro",
    }
)
"""STORED AS → the platform's format; formats other than ORC need insert-only tables."""


def table_declaration(tree: exp.Create, name: str, query: Query | None) -> CreateTable:
    """The declaration of a table; `query` is that of CREATE TABLE AS SELECT.

    Raises InvalidDefinition, and UnsupportedStatement for clauses that are not supported.
    """
    if tree.args.get("replace"):
        raise UnsupportedStatement(
            "CREATE OR REPLACE TABLE is not supported; use DROP TABLE, or INSERT OVERWRITE"
        )
    keys: tuple[str, ...] = ()
    clustered: tuple[tuple[str, ...], int] | None = None
    location: str | None = None
    properties: dict[str, str] = {}
    for clause in _properties(tree):
        match clause:
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
            case exp.RowFormatDelimitedProperty() if set(_given(clause)) <= {"fields", "null"}:
                if clause.args.get("fields"):
                    properties[FIELD_DELIMITER.name] = clause.args["fields"].name
                if clause.args.get("null"):
                    properties[NULL_TEXT.name] = clause.args["null"].name
            case exp.LocationProperty():
                location = clause.this.name
            case exp.SchemaCommentProperty():
                properties["comment"] = clause.this.name
            case _ if type(clause) is exp.Property:
                properties[clause.this.name] = clause.args["value"].name
            case _:
                raise _unsupported("CREATE TABLE", clause)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    if query is not None and columns:
        raise InvalidDefinition(f"{name}: CREATE TABLE AS SELECT takes its columns from the query")
    if query is None and not columns:
        raise InvalidDefinition(f"{name}: a table needs columns: CREATE TABLE {name} (id int, …)")
    return CreateTable(
        name,
        ", ".join(_column(name, column) for column in columns),
        keys,
        clustered,
        properties,
        location,
        bool(tree.args.get("exists")),
        query,
    )


def view_declaration(tree: exp.Create, name: str, query: Query) -> CreateView:
    """The declaration of a view. Raises UnsupportedStatement for clauses that are not supported."""
    for clause in _properties(tree):
        raise _unsupported("CREATE VIEW", clause)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    return CreateView(
        name,
        query,
        tuple(column.name.lower() for column in columns),
        bool(tree.args.get("exists")),
        bool(tree.args.get("replace")),
    )


def _properties(tree: exp.Create) -> Iterator[exp.Expr]:
    properties = tree.args.get("properties")
    return iter(properties.expressions if properties else ())


def _given(node: exp.Expr) -> Iterator[str]:
    return (name for name, value in node.args.items() if value)


def _unsupported(what: str, clause: exp.Expr) -> UnsupportedStatement:
    text = clause.sql("hive") or clause.key.removesuffix("property").upper()
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
        return f"`{node.name}` {_type(node.kind)}"
    if isinstance(node, exp.Identifier):
        return f"`{node.name}`"
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
