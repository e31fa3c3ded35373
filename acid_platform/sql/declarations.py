"""CREATE TABLE and CREATE VIEW, parsed and shown: what follows AS is a query."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from acid_platform.errors import InvalidDefinition, InvalidExpression, UnsupportedStatement
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.formats import (
    ACID_FORMAT,
    ESCAPE,
    FIELD,
    FORMATS,
    ITEM,
    KEY,
    LINES,
    NULL,
    SERDE_OF,
    stated_options,
)
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.table_properties import COMMENT, FIELD_DELIMITER, FILE_FORMAT, NULL_TEXT
from acid_platform.layout.types import LOCAL_ZONE, Constraint, ConstraintKind
from acid_platform.metastore.operations.listings import Shown
from acid_platform.metastore.records import ExternalFiles, TableRecord, ViewRecord
from acid_platform.predicates.grammar import HiveSql
from acid_platform.sql.column_lists import ColumnList
from acid_platform.sql.run_columns import partition_names
from acid_platform.sql.statements import CreateTable, CreateView, RowFormat
from acid_platform.sql.text import (
    Edit,
    Parts,
    Query,
    closing,
    edited,
    is_query,
    parsed,
    query,
    selected,
    word,
)
from acid_platform.sql.time_travel import refuse_marks

STORED_AS = MappingProxyType(
    {f"{name}file" if name in LINES else name: name for name in FORMATS if name != "csv"}
)
"""STORED AS → the platform's format; most of them need insert-only tables."""


def parse_create(text: str) -> CreateTable | CreateView | None:
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
    if any(word(parts.tokens, number) == "VIEW" for number in range(1, 5)):
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
    comments = {**columns.comments, **keys.comments}
    kinds = {type(clause) for clause in _properties(tree)}
    if exp.ExternalProperty in kinds:
        if defining is not None or columns.constraints:
            what = columns.constraints[0] if columns.constraints else "AS SELECT"
            raise UnsupportedStatement(
                f"CREATE EXTERNAL TABLE with {what} is not supported; files of others are only read"
            )
        return _external(tree, name, comments)
    if defining is not None and columns.constraints:
        raise InvalidDefinition(f"{name}: CREATE TABLE AS SELECT takes its columns from the query")
    return replace(
        _table(tree, name, defining, exp.LikeProperty in kinds),
        constraints=columns.constraints,
        temporary=exp.TemporaryProperty in kinds,
        comments=comments,
    )


def _without_details(declaration: str) -> tuple[str, ColumnList, ColumnList]:
    """The text without comments and constraints; the columns, and the partition columns."""
    parts = Parts.of(declaration)
    kinds = (number for number in range(1, 5) if word(parts.tokens, number) in ("TABLE", "VIEW"))
    kind = next(kinds, None)
    columns = keys = ColumnList()
    edits: list[Edit] = []
    if kind is not None:
        parts.at = kind + 1
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
        "CREATE VIEW": (exp.SchemaCommentProperty, exp.TemporaryProperty),
    }
)
"""What may stand behind the columns, beside TBLPROPERTIES."""


def _declared(what: str, tree: exp.Create, name: str) -> CreateTable:
    """What the columns and clauses of a CREATE say, but for ROW FORMAT and STORED AS.

    Raises UnsupportedStatement for a clause that the statement can't have.
    """
    listed = () if what == "CREATE VIEW" else _columns(tree)
    columns = ", ".join(_column(name, column) for column in listed)
    properties: dict[str, str] = {}
    said: dict[str, Any] = {}
    for clause in _properties(tree):
        match clause:
            case _ if type(clause) is exp.Property:
                properties[clause.this.name] = clause.args["value"].name
            case _ if not isinstance(clause, _CLAUSES[what]):
                raise _unsupported(what, clause)
            case exp.PartitionedByProperty():
                said["keys"] = tuple(_column(name, key) for key in clause.this.expressions)
            case exp.ClusteredByProperty() if not clause.args.get("sorted_by"):
                buckets = tuple(part.name.lower() for part in clause.expressions)
                said["clustered_by"] = buckets, int(clause.args["buckets"].name)
            case exp.LikeProperty() if not clause.expressions:
                said["like"] = _table_name(clause.this)
            case exp.LocationProperty():
                said["location"] = clause.this.name
            case exp.SchemaCommentProperty():
                properties[COMMENT] = clause.this.name
            case exp.ClusteredByProperty() | exp.LikeProperty():
                raise _unsupported(what, clause)
    exists = bool(tree.args.get("exists"))
    return CreateTable(name, columns, properties=properties, if_not_exists=exists, **said)


def _table(tree: exp.Create, name: str, defining: Query | None, like: bool) -> CreateTable:
    or_replace = bool(tree.args.get("replace"))
    if or_replace and (defining is None or tree.args.get("exists")):
        raise UnsupportedStatement(
            "CREATE OR REPLACE TABLE needs a query, and takes no IF NOT EXISTS: CREATE OR REPLACE"
            f" TABLE {name} AS SELECT …"
        )
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
    files = _row_format(what, tree, _OWN_DELIMITERS)
    stored = {FILE_FORMAT.name: files.stored} if files.stored else {}
    properties = {**stored, **files.options, **declared.properties}
    return replace(declared, properties=properties, query=defining, or_replace=or_replace)


def _external(tree: exp.Create, name: str, comments: Mapping[str, str]) -> CreateTable:
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
    return replace(declared, external=_row_format(what, tree), comments=comments)


def _row_format(
    what: str, tree: exp.Create, delimiters: Mapping[str, str] = _DELIMITERS
) -> RowFormat:
    """What ROW FORMAT and STORED AS say. Raises UnsupportedStatement for other words in them."""
    stored, serde = "", ""
    options: dict[str, str] = {}
    for clause in _properties(tree):
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
    temporary = any(isinstance(clause, exp.TemporaryProperty) for clause in _properties(tree))
    if temporary and "." in name:
        raise InvalidDefinition(
            f"CREATE TEMPORARY VIEW {name}: the name of a temporary view is of no database; write"
            f" {name.rpartition('.')[2]}"
        )
    return CreateView(
        name,
        defining,
        tuple(column.name.lower() for column in _columns(tree)),
        bool(tree.args.get("exists")),
        bool(tree.args.get("replace")),
        _declared("CREATE VIEW", tree, name).properties,
        comments,
        temporary,
    )


def _columns(tree: exp.Create) -> Sequence[exp.Expr]:
    return tree.this.expressions if isinstance(tree.this, exp.Schema) else ()


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


Described = tuple[str, str, str]
"""Name, type and comment."""


def described(rows: Sequence[Described]) -> Shown:
    columns = ("col_name", "data_type", "comment")
    return Shown(columns, tuple(dict(zip(columns, row, strict=True)) for row in rows))


def heading(title: str) -> list[Described]:
    return [("", "", ""), (title, "", "")]


def view_rows(view: ViewRecord) -> list[Described]:
    return [(name, kind, view.comments.get(name, "")) for name, kind in view.columns]


def column_rows(record: TableRecord) -> list[Described]:
    """Rows of Hive's DESCRIBE: all columns, then the partition columns again under a heading."""
    own, keys = (
        [(name, kind, record.comments.get(name, "")) for name, kind in columns]
        for columns in (record.columns, record.partition_columns)
    )
    rows = [*own, *keys]
    if keys:
        rows += [*heading("# Partition Information"), ("# col_name", "data_type", "comment")]
        rows += keys
    return rows


def detail_rows(
    warehouse: Warehouse, record: TableRecord, external: ViewRecord | None
) -> list[Described]:
    database, _, _ = record.name.partition(".")
    created = datetime.datetime.fromtimestamp(record.created / 1000, datetime.UTC)
    rows = [
        *heading("# Detailed Table Information"),
        ("Database:", database, ""),
        ("CreateTime:", f"{created:%a %b %d %H:%M:%S UTC %Y}", ""),
        ("Location:", record.location, ""),
        ("Table Type:", "EXTERNAL_TABLE" if external else "MANAGED_TABLE", ""),
        ("Table Parameters:", "", ""),
        *(("", name, value) for name, value in sorted(record.properties.items())),
        *heading("# Storage Information"),
        *_stored_rows(record, external),
        ("Num Buckets:", str(record.bucket_count or -1), ""),
        ("Bucket Columns:", f"[{', '.join(record.bucket_columns)}]", ""),
    ]
    if record.partitioned:
        count = len(partition_names(warehouse.metastore, record, external))
        rows.append(("Num Partitions:", str(count), ""))
    if record.constraints:
        rows += heading("# Constraints")
        rows += [
            (constraint.name, str(constraint), _options(constraint).strip())
            for constraint in record.constraints
        ]
    return rows


def _stored_rows(record: TableRecord, external: ViewRecord | None) -> list[Described]:
    """How the files are stored."""
    if external is None or external.external is None:
        return [("Stored As:", _word_of(_own_format(record)), "")]
    files = external.external
    rows = [("Stored As:", _word_of(files.format, "TEXTFILE"), "")]
    if files.format in SERDE_OF:
        rows.append(("SerDe Library:", SERDE_OF[files.format], ""))
    stated = stated_options(files.format, files.options)
    return [*rows, *(("", name, _visible(text)) for name, text in sorted(stated.items()))]


def _word_of(stored: str, other: str = ACID_FORMAT.name.upper()) -> str:
    """The word of STORED AS for a format; OpenCSVSerde reads text files."""
    return next((word.upper() for word, name in STORED_AS.items() if name == stored), other)


def _visible(text: str) -> str:
    """A text in which Hive's separators can be seen, as Hive's SQL spells them."""
    return "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in text
    )


def _own_format(record: TableRecord) -> str:
    return FILE_FORMAT.text(record.properties)


def create_table(record: TableRecord, external: ViewRecord | None = None) -> str:
    """The CREATE TABLE statement that declares this table."""
    own, keys = (
        [_column_line(record, name, kind) for name, kind in columns]
        for columns in (record.columns, record.partition_columns)
    )
    own += [
        f"  CONSTRAINT `{constraint.name}` {constraint}{_options(constraint)}"
        for constraint in record.constraints
        if constraint.kind not in _OF_COLUMNS
    ]
    word = "EXTERNAL TABLE" if external else "TABLE"
    lines = [f"CREATE {word} {_quoted_name(record.name)}(", ",\n".join(own) + ")"]
    others = dict(record.properties)
    if comment := others.pop(COMMENT, ""):
        lines.append(f"COMMENT {sql_string(comment)}")
    if keys:
        lines += ["PARTITIONED BY (", ",\n".join(keys) + ")"]
    if record.bucket_count:
        names = ",\n".join(f"  `{name}`" for name in record.bucket_columns)
        lines += ["CLUSTERED BY (", f"{names})", f"INTO {record.bucket_count} BUCKETS"]
    if external is not None and external.external is not None:
        lines += _serde_lines(external.external)
    else:
        lines.append(f"STORED AS {_word_of(_own_format(record))}")
    lines += ["LOCATION", f"  {sql_string(record.location)}"]
    if others:
        lines += ["TBLPROPERTIES (", f"{_pairs(others)})"]
    return "\n".join(lines)


def _pairs(properties: Mapping[str, str]) -> str:
    return ",\n".join(
        f"  {sql_string(key)}={sql_string(value)}" for key, value in sorted(properties.items())
    )


def _serde_lines(files: ExternalFiles) -> list[str]:
    """The serde of an external table, as CREATE EXTERNAL TABLE takes it."""
    if files.format not in SERDE_OF:
        return [f"STORED AS {_word_of(files.format, 'TEXTFILE')}"]
    lines = ["ROW FORMAT SERDE", f"  {sql_string(SERDE_OF[files.format])}"]
    if stated := stated_options(files.format, files.options):
        lines += ["WITH SERDEPROPERTIES (", f"{_pairs(stated)})"]
    return [*lines, "STORED AS TEXTFILE"]


def create_view(view: ViewRecord) -> str:
    """The CREATE VIEW statement that declares this view."""
    text = f"CREATE VIEW {_quoted_name(view.name)}"
    if view.comments:
        columns = (f"  `{name}`{_commented(view.comments.get(name))}" for name, _ in view.columns)
        text += " (\n{})".format(",\n".join(columns))
    others = dict(view.properties)
    if comment := others.pop(COMMENT, ""):
        text += f"\nCOMMENT {sql_string(comment)}\n"
    if others:
        pairs = (f"{sql_string(name)}={sql_string(value)}" for name, value in others.items())
        text += f"\nTBLPROPERTIES ({', '.join(pairs)})\n"
    return f"{text.rstrip()} AS {view.query}"


def _quoted_name(full: str) -> str:
    database, _, name = full.partition(".")
    return f"`{database}`.`{name}`"


_OF_COLUMNS = (ConstraintKind.NOT_NULL, ConstraintKind.DEFAULT)
"""Constraints that CREATE TABLE declares beside their column."""


def _column_line(record: TableRecord, name: str, kind: str) -> str:
    line = f"  `{name}` {kind}"
    for constraint in record.constraints:
        if constraint.kind in _OF_COLUMNS and constraint.columns == (name,):
            declared = f"DEFAULT {constraint.text}" if constraint.text else "NOT NULL"
            line += f" CONSTRAINT `{constraint.name}` {declared}{_options(constraint)}"
    return line + _commented(record.comments.get(name))


def _options(constraint: Constraint) -> str:
    """The words after a constraint that say how far it holds."""
    if constraint.enabled:
        return ""
    return f" DISABLE NOVALIDATE{' RELY' if constraint.rely else ''}"


def _commented(comment: str | None) -> str:
    return f" COMMENT {sql_string(comment)}" if comment else ""
