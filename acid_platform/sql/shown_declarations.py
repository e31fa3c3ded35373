"""How DESCRIBE and SHOW CREATE TABLE show the declaration of one table or view."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from acid_platform.base.table_properties import COMMENT, FILE_FORMAT
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.constraints import Constraint, ConstraintKind
from acid_platform.layout.external_formats import SERDE_OF, stated_options
from acid_platform.layout.sql_text import sql_string
from acid_platform.metastore.records import ExternalFiles, TableRecord, ViewRecord
from acid_platform.metastore.show_columns import Shown
from acid_platform.sql.declarations import STORED_AS
from acid_platform.sql.run_external import partition_names

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
        rows += [(one.name, str(one), _options(one).strip()) for one in record.constraints]
    return rows


def _stored_rows(record: TableRecord, external: ViewRecord | None) -> list[Described]:
    """How the files are stored."""
    if external is None or external.external is None:
        return [("Stored As:", _stored_as(record), "")]
    files = external.external
    rows = [("Stored As:", _word_of(files.format), "")]
    if files.format in SERDE_OF:
        rows.append(("SerDe Library:", SERDE_OF[files.format], ""))
    stated = stated_options(files.format, files.options)
    return [*rows, *(("", name, _visible(text)) for name, text in sorted(stated.items()))]


def _word_of(stored: str) -> str:
    """The word of STORED AS for a format; OpenCSVSerde reads text files."""
    words = {one: word.upper() for word, one in STORED_AS.items()}
    return words.get(stored, "TEXTFILE")


def _visible(text: str) -> str:
    """A text in which Hive's separators can be seen, as Hive's SQL spells them."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def _stored_as(record: TableRecord) -> str:
    name = record.properties.get(FILE_FORMAT.name, "orc").lower()
    return next((word.upper() for word, stored in STORED_AS.items() if stored == name), "ORC")


def create_table(record: TableRecord, external: ViewRecord | None = None) -> str:
    """The CREATE TABLE statement that declares this table."""
    own, keys = (
        [_column_line(record, name, kind) for name, kind in columns]
        for columns in (record.columns, record.partition_columns)
    )
    own += [
        f"  CONSTRAINT `{one.name}` {one}{_options(one)}"
        for one in record.constraints
        if one.kind not in _OF_COLUMNS
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
        lines.append(f"STORED AS {_stored_as(record)}")
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
        return [f"STORED AS {_word_of(files.format)}"]
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
    for one in record.constraints:
        if one.kind in _OF_COLUMNS and one.columns == (name,):
            declared = f"DEFAULT {one.text}" if one.text else "NOT NULL"
            line += f" CONSTRAINT `{one.name}` {declared}{_options(one)}"
    return line + _commented(record.comments.get(name))


def _options(constraint: Constraint) -> str:
    """The words after a constraint that say how far it holds."""
    if constraint.enabled:
        return ""
    return f" DISABLE NOVALIDATE{' RELY' if constraint.rely else ''}"


def _commented(comment: str | None) -> str:
    return f" COMMENT {sql_string(comment)}" if comment else ""
