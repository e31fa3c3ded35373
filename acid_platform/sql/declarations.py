"""Parsing CREATE TABLE and CREATE VIEW; what follows AS is a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
_OWN_DELIMITERS = MappingProxyType({"fields": FIELD_DELIMITER.name, "null": NULL_TEXT.name})
"""Those that a table has, and its properties."""
_FILES = (exp.FileFormatProperty, exp.RowFormatDelimitedProperty)
_PLACED = (exp.LocationProperty, exp.SchemaCommentProperty)
_LIKE = (*_PLACED, exp.LikeProperty, exp.TemporaryProperty)
_CLAUSES: Mapping[str, tuple[type[exp.Expr], ...]] = MappingProxyType(
    {
        "CREATE TABLE": (*_LIKE, *_FILES, exp.PartitionedByProperty, exp.ClusteredByProperty),
        "CREATE TABLE … LIKE": _LIKE,
        "CREATE EXTERNAL TABLE": (
            *(*_PLACED, *_FILES, exp.PartitionedByProperty),
            *(exp.ExternalProperty, exp.RowFormatSerdeProperty),
        ),
        "CREATE VIEW": (exp.SchemaCommentProperty,),
    }
)
"""What may stand behind the columns, beside TBLPROPERTIES."""


@dataclass(slots=True)
class _Declared:
    """What the clauses of a CREATE say."""

    columns: str
    keys: tuple[str, ...] = ()
    clustered: tuple[tuple[str, ...], int] | None = None
    location: str | None = None
    like: str = ""
    properties: dict[str, str] = field(default_factory=dict)


def _declared(what: str, tree: exp.Create, name: str) -> _Declared:
    """Raises UnsupportedStatement for a clause that the statement can't have."""
    declared = _Declared("" if what == "CREATE VIEW" else _listed(name, _columns(tree)))
    for clause in _properties(tree):
        match clause:
            case _ if type(clause) is exp.Property:
                declared.properties[clause.this.name] = clause.args["value"].name
            case _ if not isinstance(clause, _CLAUSES[what]):
                raise _unsupported(what, clause)
            case exp.PartitionedByProperty():
                declared.keys = tuple(_column(name, key) for key in clause.this.expressions)
            case exp.ClusteredByProperty() if not clause.args.get("sorted_by"):
                columns = tuple(part.name.lower() for part in clause.expressions)
                declared.clustered = columns, int(clause.args["buckets"].name)
            case exp.LikeProperty() if not clause.expressions:
                declared.like = _table_name(clause.this)
            case exp.LocationProperty():
                declared.location = clause.this.name
            case exp.SchemaCommentProperty():
                declared.properties[COMMENT] = clause.this.name
            case exp.ClusteredByProperty() | exp.LikeProperty():
                raise _unsupported(what, clause)
    return declared


def _table(
    tree: exp.Create, name: str, defining: Query | None, comments: Mapping[str, str]
) -> CreateTable:
    if tree.args.get("replace"):
        raise UnsupportedStatement(
            "CREATE OR REPLACE TABLE is not supported; use DROP TABLE, or INSERT OVERWRITE"
        )
    clauses = [*_properties(tree)]
    like = any(isinstance(clause, exp.LikeProperty) for clause in clauses)
    what = "CREATE TABLE … LIKE" if like else "CREATE TABLE"
    declared = _declared(what, tree, name)
    if like and (declared.columns or defining):
        raise UnsupportedStatement(
            f"{what} with columns or a query is not supported; leave LIKE out"
        )
    if defining is not None and declared.columns:
        raise InvalidDefinition(f"{name}: CREATE TABLE AS SELECT takes its columns from the query")
    if defining is None and not declared.columns and not like:
        raise InvalidDefinition(f"{name}: a table needs columns: CREATE TABLE {name} (id int, …)")
    files = row_format(what, clauses, _OWN_DELIMITERS)
    stored = {FILE_FORMAT.name: files.stored} if files.stored not in ("", "orc") else {}
    return CreateTable(
        name,
        declared.columns,
        declared.keys,
        declared.clustered,
        {**stored, **files.options, **declared.properties},
        declared.location,
        bool(tree.args.get("exists")),
        defining,
        declared.like,
        comments,
    )


def _external(tree: exp.Create, name: str, comments: Mapping[str, str]) -> CreateExternal:
    what = "CREATE EXTERNAL TABLE"
    declared = _declared(what, tree, name)
    if not declared.columns:
        raise InvalidDefinition(f"{name}: an external table needs columns: (id int, …)")
    if not declared.location:
        raise InvalidDefinition(
            f"{name}: an external table needs a LOCATION '…', the directory of its files"
        )
    untyped = [key for key in declared.keys if " " not in key]
    if untyped:
        raise InvalidDefinition(f"{name}: partition column {untyped[0]} needs a type")
    return CreateExternal(
        name,
        declared.columns,
        declared.keys,
        declared.location,
        row_format(what, _properties(tree)),
        declared.properties,
        bool(tree.args.get("exists")),
        comments,
    )


def row_format(
    what: str, clauses: Iterable[exp.Expr], delimiters: Mapping[str, str] = _DELIMITERS
) -> RowFormat:
    """What ROW FORMAT and STORED AS say. Raises UnsupportedStatement for other words in them."""
    stored, serde = "", ""
    options: dict[str, str] = {}
    for clause in clauses:
        parts = {part: value for part, value in clause.args.items() if value}
        match clause:
            case exp.FileFormatProperty() if clause.this.name.lower() in STORED_AS:
                stored = STORED_AS[clause.this.name.lower()]
            case exp.RowFormatDelimitedProperty() if parts.keys() <= delimiters.keys():
                options |= {delimiters[part]: value.name for part, value in parts.items()}
            case exp.RowFormatSerdeProperty():
                serde = clause.this.name
                pairs = clause.args.get("serde_properties")
                for each in pairs.expressions if pairs else ():
                    options[each.this.name] = each.args["value"].name
            case exp.FileFormatProperty() | exp.RowFormatDelimitedProperty():
                raise _unsupported(what, clause)
    return RowFormat(stored, serde, options)


def _view(tree: exp.Create, name: str, defining: Query, comments: Mapping[str, str]) -> CreateView:
    return CreateView(
        name,
        defining,
        tuple(column.name.lower() for column in _columns(tree)),
        bool(tree.args.get("exists")),
        bool(tree.args.get("replace")),
        _declared("CREATE VIEW", tree, name).properties,
        comments,
    )


def _columns(tree: exp.Create) -> Sequence[exp.Expr]:
    return tree.this.expressions if isinstance(tree.this, exp.Schema) else ()


def _listed(table: str, columns: Iterable[exp.Expr]) -> str:
    return ", ".join(_column(table, column) for column in columns)


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
    """The text of a type; sqlglot has a word of its own for the one with a time zone.

    Raises InvalidDefinition for a char or varchar without a length, which sqlglot takes for a
    string and Hive refuses.
    """
    zoned = kind.copy()
    for part in list(zoned.find_all(exp.DataType)):
        if part.is_type("char", "varchar") and not part.expressions:
            name = part.this.value.lower()
            raise InvalidDefinition(f"{name} needs a length: write {name}(10), or string")
        if part.is_type("timestampltz"):
            other = exp.DataType(this=exp.DType.USERDEFINED, kind=LOCAL_ZONE)
            if part is zoned:
                return LOCAL_ZONE
            part.replace(other)
    return str(zoned.sql("hive"))
