"""CREATE TABLE and CREATE VIEW: sqlglot's trees as declarations. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from sqlglot import exp

from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.layout import formats
from acid_platform.sql.statements import CreateTable, CreateView

STORED_AS = MappingProxyType(
    {
        "orc": "orc",
        "parquet": "parquet",
        "textfile": "text",
        "jsonfile": "json",
        "avro": "avro",
    }
)
"""STORED AS → the platform's format; all but ORC need insert-only tables."""


def table_declaration(tree: exp.Create, name: str, query: exp.Query | None) -> CreateTable:
    """Raises InvalidDefinition, UnsupportedStatement for clauses that are not built."""
    if tree.args.get("replace"):
        raise UnsupportedStatement(
            "CREATE OR REPLACE TABLE is not supported; DROP TABLE, or INSERT OVERWRITE"
        )
    keys: tuple[str, ...] = ()
    clustered: tuple[tuple[str, ...], int] | None = None
    location: str | None = None
    properties: dict[str, str] = {}
    for one in _properties(tree):
        match one:
            case exp.PartitionedByProperty():
                keys = tuple(_column(name, key) for key in one.this.expressions)
            case exp.ClusteredByProperty() if not one.args.get("sorted_by"):
                clustered = (
                    tuple(part.name.lower() for part in one.expressions),
                    int(one.args["buckets"].name),
                )
            case exp.FileFormatProperty() if one.this.name.lower() in STORED_AS:
                stored = STORED_AS[one.this.name.lower()]
                if stored != "orc":
                    properties.setdefault(formats.PROPERTY, stored)
            case exp.RowFormatDelimitedProperty() if set(_given(one)) <= {"fields", "null"}:
                if one.args.get("fields"):
                    properties["field.delim"] = one.args["fields"].name
                if one.args.get("null"):
                    properties["serialization.null.format"] = one.args["null"].name
            case exp.LocationProperty():
                location = one.this.name
            case exp.SchemaCommentProperty():
                properties["comment"] = one.this.name
            case _ if type(one) is exp.Property:
                properties[one.this.name] = one.args["value"].name
            case _:
                raise _not_built("CREATE TABLE", one)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    if query is not None and columns:
        raise InvalidDefinition(f"{name}: CREATE TABLE AS SELECT takes its columns from the query")
    if query is None and not columns:
        raise InvalidDefinition(f"{name}: a table needs columns: CREATE TABLE {name} (id int, …)")
    return CreateTable(
        name,
        ", ".join(_column(name, one) for one in columns),
        keys,
        clustered,
        properties,
        location,
        bool(tree.args.get("exists")),
        query,
    )


def view_declaration(tree: exp.Create, name: str, query: exp.Query) -> CreateView:
    """Raises UnsupportedStatement for clauses that are not built."""
    for one in _properties(tree):
        raise _not_built("CREATE VIEW", one)
    columns = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    return CreateView(
        name,
        query,
        tuple(one.name.lower() for one in columns),
        bool(tree.args.get("exists")),
        bool(tree.args.get("replace")),
    )


def _properties(tree: exp.Create) -> Iterator[exp.Expr]:
    found = tree.args.get("properties")
    return iter(found.expressions if found else ())


def _given(node: exp.Expr) -> Iterator[str]:
    return (name for name, value in node.args.items() if value)


def _not_built(what: str, clause: exp.Expr) -> UnsupportedStatement:
    text = clause.sql("hive") or clause.key.removesuffix("property").upper()
    return UnsupportedStatement(f"{what} with {text} is not supported; leave that part away")


def _column(table: str, node: exp.Expr) -> str:
    """`name type`, or of a key of CREATE TABLE AS SELECT its name alone."""
    if isinstance(node, exp.ColumnDef):
        if node.args.get("constraints"):
            clause = node.args["constraints"][0].sql("hive")
            raise UnsupportedStatement(
                f"column {node.name!r} of {table} with {clause} is not supported; leave that part"
                " away"
            )
        if node.kind is None:
            raise InvalidDefinition(f"column {node.name!r} of {table} needs a type")
        return f"`{node.name}` {node.kind.sql('hive')}"
    if isinstance(node, exp.Identifier):
        return f"`{node.name}`"
    raise UnsupportedStatement(
        f"{node.sql('hive')!r} in the columns of {table} is not supported; leave that part away"
    )
