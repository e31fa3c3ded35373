"""Declarations of tables as values, what may be declared, and what ALTER TABLE makes of them. Pure.

ORC files name their columns, and every reader, Hive and Trino too, finds a column by the name in
the file's footer. So a column that gets another name, or whose name becomes free for another one,
needs files that are written again; everything else is a change of the declaration alone. Parquet
files of tables with full ACID have ids of columns, and stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from acid_platform.base.arguments import require_kind, require_list, require_texts
from acid_platform.base.config import Settings
from acid_platform.errors import InvalidDefinition, UnknownColumn
from acid_platform.layout import table_properties
from acid_platform.layout.acid_keys import VIRTUAL_COLUMNS
from acid_platform.layout.bucketing import refuse_unhashable
from acid_platform.layout.formats import (
    KEYED_FORMATS,
    FileFormat,
    is_insert_only,
    with_codec,
    without_default,
)
from acid_platform.layout.names import BACKTICK
from acid_platform.layout.sort_columns import check_sort_columns
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.table_properties import (
    BUCKETING_VERSION,
    CODEC,
    FILE_FORMAT,
    TRANSACTIONAL,
)
from acid_platform.layout.types import (
    CHAR_TYPES,
    UNNAMED,
    Column,
    Constraint,
    HiveType,
    folded,
    parse_columns,
    parse_type,
    require_columns,
    unknown_column,
)
from acid_platform.metastore.records import TableRecord
from acid_platform.tables.table_constraints import declared_constraints


@dataclass(frozen=True, slots=True)
class Declaration:
    """Columns, partition columns, buckets and properties of a new table."""

    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    properties: Mapping[str, str]
    bucket_columns: tuple[str, ...]
    bucket_count: int
    comments: Mapping[str, str]
    constraints: tuple[Constraint, ...] = ()

    def record(self, name: str, location: str) -> TableRecord:
        """The declaration as the metastore takes it, which gives it an id."""
        own, keys = (
            tuple((column.name, str(column.type)) for column in columns)
            for columns in (self.columns, self.partition_columns)
        )
        properties = without_default(self.properties)
        ids = tuple(column.id for column in self.columns)
        return TableRecord(
            0,
            name,
            location,
            own,
            keys,
            properties,
            self.bucket_columns,
            self.bucket_count,
            comments=dict(self.comments),
            constraints=self.constraints,
            column_ids=ids if all(ids) else (),
        )

    @classmethod
    def of(
        cls,
        table: str,
        columns: tuple[Column, ...],
        partitioned_by: Sequence[str],
        clustered_by: tuple[Sequence[str], int] | None,
        properties: Mapping[str, str] | None,
        written_before: bool = False,
        comments: Mapping[str, str] | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> Declaration:
        """A checked declaration.

        `written_before`: the table has files, so types that can only be read are allowed too.
        `comments`: of columns and partition columns. Raises InvalidDefinition, UnknownColumn for
        the comment or constraint of no column, UnsupportedStatement for a constraint that can't be
        enforced.
        """
        require_list(
            "partitioned_by", partitioned_by, "a list, such as ['p int']", InvalidDefinition
        )
        table_properties.require_property_texts(properties)
        _require_clustering(clustered_by)
        all_properties = {TRANSACTIONAL.name: "true", **(properties or {})}
        clustered, buckets = clustered_by or ((), 0)
        names = tuple(name.lower() for name in clustered)
        keys = parse_columns(", ".join(partitioned_by)) if partitioned_by else ()
        _check_properties(table, all_properties)
        FileFormat.of(all_properties).refuse(columns)
        check_columns(table, columns, keys, written_before)
        own = [(column.name, str(column.type)) for column in columns]
        check_sort_columns(table, all_properties, own)
        if names:
            if written_before and BUCKETING_VERSION.name not in all_properties:
                raise InvalidDefinition(
                    f"{table}: give properties={{{BUCKETING_VERSION.name!r}: '1' or '2'}} as the"
                    " table has it in Hive: otherwise rows would go to other buckets"
                )
            all_properties.setdefault(BUCKETING_VERSION.name, "2")
            _check_buckets(table, columns, names)
        own_comments = comments_of(table, (*columns, *keys), comments or {})
        checked = declared_constraints(table, columns, keys, constraints)
        return cls(columns, keys, all_properties, names, buckets, own_comments, checked)


def comments_of(
    table: str, columns: Sequence[Column], comments: Mapping[str, str]
) -> dict[str, str]:
    """The comments by the names of their columns, without empty ones.

    Raises UnknownColumn for the comment of no column.
    """
    given = "a dict of columns and texts, such as {'id': 'the key'}"
    require_texts("comments", comments, given, InvalidDefinition)
    require_columns(comments, columns, table)
    return {name.lower(): text for name, text in comments.items() if text}


def with_format(properties: Mapping[str, str] | None, settings: Settings) -> dict[str, str]:
    """The properties of a new table, which state its format unless it is ORC, and its codec if it
    is. Without one, a table with full ACID has that of `acid.format.default`.

    Raises InvalidDefinition.
    """
    table_properties.require_property_texts(properties)
    all_properties = dict(properties or {})
    if not is_insert_only(all_properties):
        all_properties.setdefault(FILE_FORMAT.name, settings.text("acid.format.default"))
    return with_codec(all_properties)


def in_format(record: TableRecord, stored: str) -> TableRecord:
    """The table with files of another format. Raises InvalidDefinition for an insert-only table,
    and for a format that can't keep keys of rows or one of the columns."""
    if is_insert_only(record.properties):
        raise InvalidDefinition(
            f"{record.name} is insert-only, so its format stays: CREATE TABLE … AS SELECT"
        )
    if FILE_FORMAT.text(record.properties) == stored.lower():
        return record
    own = {FILE_FORMAT.name, CODEC.name}
    properties = {name: text for name, text in record.properties.items() if name not in own}
    properties = with_codec({**properties, FILE_FORMAT.name: stored.lower()})
    _check_properties(record.name, properties)
    columns = tuple(Column(name, parse_type(kind)) for name, kind in record.columns)
    FileFormat.of(properties).refuse(columns)
    check_sort_columns(record.name, properties, record.columns)
    return replace(record, properties=without_default(properties))


def widened(
    record: TableRecord, columns: str, comments: Mapping[str, str] | None = None
) -> TableRecord:
    """The table with additional columns, such as `"note string"`, and the comments of these.

    Raises UnknownColumn for a column that exists already, and for the comment of no new column.
    """
    types = {name: kind for name, kind in (*record.columns, *record.partition_columns)}
    new = []
    parsed = parse_columns(columns)
    check_columns(record.name, parsed)
    FileFormat.of(record.properties).refuse(parsed)
    for column in parsed:
        if column.name in types:
            raise UnknownColumn(
                f"{record.name} has a column {column.name!r} {types[column.name]} already"
            )
        new.append((column.name, str(column.type)))
    new_comments = comments_of(record.name, parsed, comments or {})
    return replace(
        record.with_columns((*record.columns, *new)),
        comments={**record.comments, **new_comments},
    )


def _require_clustering(clustered_by: Any) -> None:
    """Raises InvalidDefinition unless that is None, or columns and a number of buckets."""
    expected = "columns and a number of buckets, such as (['id'], 4)"
    if clustered_by is None:
        return
    pair = isinstance(clustered_by, (tuple, list)) and len(clustered_by) == 2
    kinds = (tuple, list) if pair else ()
    require_kind("clustered_by", clustered_by, kinds, expected, InvalidDefinition)
    names, count = clustered_by
    require_list("the columns of clustered_by", names, expected, InvalidDefinition)
    require_kind("the buckets of clustered_by", count, int, expected, InvalidDefinition)


def _check_properties(table: str, properties: Mapping[str, str]) -> None:
    table_properties.check(table, properties)
    stored = FileFormat.of(properties)
    if stored.keyed and stored.name not in KEYED_FORMATS:
        raise InvalidDefinition(
            f"{table}: {stored.name} files hold no row identities; set"
            f" transactional_properties=insert_only, or store the table as {KEYED_FORMATS[0]}"
        )


def check_columns(
    table: str, columns: Sequence[Column], keys: Sequence[Column] = (), written_before: bool = False
) -> None:
    """Raises InvalidDefinition for a name or type that can't be declared."""
    for column in (*columns, *keys):
        if column.name in VIRTUAL_COLUMNS or column.name.startswith("__"):
            raise InvalidDefinition(
                f"{table}: column {column.name!r} {column.type} can't be"
                " declared, because its name is reserved: use another name"
            )
        if "`" in column.name and not written_before:
            raise InvalidDefinition(
                f"{table}: the name of a column {column.name!r} contains '`', which {BACKTICK};"
                " choose another name"
            )
    _check_letters(table, [(column.name, column.type) for column in (*columns, *keys)])
    for column in keys:
        if column.type.kind in UNNAMED and not written_before:
            raise InvalidDefinition(
                f"{table}: {column} can't be a partition column, because this"
                " platform can't name directories of this type; use string or timestamp"
            )
        if column.type.nested or column.name.startswith(("_", ".")):
            raise InvalidDefinition(
                f"{table}: {column} can't be a partition column: its"
                " directories would be hidden, or its type is nested; use"
                " another name or type"
            )


def _check_letters(table: str, named: Sequence[tuple[str, HiveType]]) -> None:
    """Refuses names, also of fields at any depth, that Python, Spark and Hive match differently."""
    _check_siblings(table, [name for name, _ in named])
    for _, kind in named:
        for part in kind.walk():
            if part.kind == "struct":
                _check_siblings(table, [name for name, _ in part.children])


def _check_siblings(table: str, names: Sequence[str]) -> None:
    for name in names:
        if _DOTTED in name:
            raise InvalidDefinition(
                f"{table}: {name!r} can't be declared: in lower case 'İ' has two characters, which"
                " Spark does not take for it; use another letter"
            )
    by_folded: dict[str, str] = {}
    for name in names:
        other = by_folded.setdefault(folded(name), name)
        if other != name:
            raise InvalidDefinition(
                f"{table}: {other!r} and {name!r} can't both be declared, because Spark takes them"
                " for one name in two cases; use another name"
            )


_DOTTED = "i\u0307"


def _check_buckets(table: str, columns: Sequence[Column], names: Sequence[str]) -> None:
    by_name = {column.name: column for column in columns}
    for name in names:
        clustering_column = by_name.get(name)
        if clustering_column is None:
            raise InvalidDefinition(f"{table}: there is no column {name!r} to cluster by")
        refuse_unhashable(clustering_column.type)


_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double", "string"),
    "smallint": ("int", "bigint", "float", "double", "string"),
    "int": ("bigint", "float", "double", "string"),
    "bigint": ("float", "double", "string"),
    "float": ("double",),
    "varchar": ("string",),
}
"""For each type, the types into which every reader can convert values of older files (F18)."""


def change_column(
    record: TableRecord, old: str, new: Column, after: str | None, comment: str | None = None
) -> TableRecord:
    """The table after ALTER TABLE CHANGE; `after` empty: in the first place. No file changes.

    `comment` None: it stays, as in Hive; empty: there is none any more. Raises UnknownColumn,
    InvalidDefinition for a type that is not wider.
    """
    columns = dict(record.columns)
    require_wider(record, old, new)
    if new.name != old and new.name in {*columns, *dict(record.partition_columns)}:
        raise InvalidDefinition(f"{record.name} has a column {new.name!r} already")
    names = [name for name in columns if name != old]
    if after is None:
        position = list(columns).index(old)
    elif not after:
        position = 0
    elif after in names:
        position = names.index(after) + 1
    else:
        raise UnknownColumn(f"{record.name} has no column {after!r} to put {old!r} after")
    changed = [(name, columns[name]) for name in names]
    changed.insert(position, (new.name, str(new.type)))
    comments = dict(record.comments)
    before = comments.pop(old, "")
    if text := before if comment is None else comment:
        comments[new.name] = text
    return replace(record.with_columns(changed, {new.name: old}), comments=comments)


def require_wider(record: TableRecord, old: str, new: Column) -> None:
    """Raises InvalidDefinition if column `old` can't become `new`; UnknownColumn."""
    old_type = parse_type(declared_type(record, old))
    if new.type != old_type and not wider(old_type, new.type):
        raise InvalidDefinition(
            f"{record.name}: {old} {old_type} can't become {new.type}: existing rows may not"
            " fit; CREATE TABLE … AS SELECT with a CAST"
        )
    if old in record.bucket_columns and (new.name, new.type) != (old, old_type):
        raise InvalidDefinition(
            f"{record.name}: {old} decides the bucket of each row and stays as it is"
        )


def declared_type(record: TableRecord, name: str) -> str:
    """The type of a column. Raises UnknownColumn, InvalidDefinition for a partition column."""
    columns = dict(record.columns)
    if name in dict(record.partition_columns):
        raise InvalidDefinition(
            f"{record.name}: {name} is a partition column, which is in the names of directories;"
            " CREATE TABLE … AS SELECT makes a table with another one"
        )
    if name not in columns:
        typed_columns = [Column(each, parse_type(kind)) for each, kind in record.columns]
        raise unknown_column(name, record.name, typed_columns)
    return columns[name]


def wider(old: HiveType, new: HiveType) -> bool:
    """Whether every reader converts values of the first type into the second (F18)."""
    if old.kind == new.kind == "decimal":
        (precision, scale), (digits, places) = old.sizes, new.sizes
        return places >= scale and digits - places >= precision - scale
    if old.kind == new.kind and old.kind in CHAR_TYPES:
        return new.sizes >= old.sizes
    return new.kind in _WIDER.get(old.kind, ())


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A table before and after a change. `names`: of each column that has values before and after
    it, the old and the new name, in the order of the new ones.

    Raises InvalidDefinition if a constraint, or the order of rows, names a column that goes.
    """

    before: TableRecord
    after: TableRecord
    names: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        check_sort_columns(self.before.name, self.after.properties, self.after.columns)
        present = dict((*self.after.columns, *self.after.partition_columns))
        for constraint in self.before.constraints:
            for column in constraint.columns:
                if column not in present:
                    raise InvalidDefinition(
                        f"{self.before.name}: column {column!r} can't go, since constraint"
                        f" {constraint.name} names it; ALTER TABLE … DROP CONSTRAINT first"
                    )

    @property
    def renames(self) -> bool:
        """Whether a column has another name, or none any more: readers find columns by name."""
        return dict(self.names) != {name: name for name, _ in self.before.columns}

    @property
    def moves(self) -> bool:
        """Whether a column has another place, by which some files know it."""
        old = [name for name, _ in self.before.columns]
        return [name for name, _ in self.after.columns[: len(old)]] != old


_NAME = "the name of a column"
Changing: TypeAlias = Callable[[TableRecord], ColumnChange]
"""Computes the change of a declaration. Raises UnknownColumn, InvalidDefinition."""


def added(columns: str, comments: Mapping[str, str] | None = None) -> Changing:
    """ADD COLUMNS: `"note string"`."""

    def change(record: TableRecord) -> ColumnChange:
        staying = tuple((name, name) for name, _ in record.columns)
        return ColumnChange(record, widened(record, columns, comments), staying)

    return change


def changed(
    old: str, column: str, after: str | None = None, comment: str | None = None
) -> Changing:
    """CHANGE: a column gets a name, a type and perhaps a place; `after` empty: the first one.

    `comment` None: it stays; empty: there is none any more.
    """
    new, *more = parse_columns(column)
    if more:
        raise InvalidDefinition(
            f"{column!r} declares {1 + len(more)} columns, and {old} becomes one; write one"
        )
    require_kind("old", old, str, _NAME, InvalidDefinition)
    require_kind("after", after, (str, type(None)), _NAME, InvalidDefinition)

    def change(record: TableRecord) -> ColumnChange:
        check_columns(record.name, [new])
        FileFormat.of(record.properties).refuse((new,))
        made = change_column(record, old.lower(), new, after and after.lower(), comment)
        return ColumnChange(
            record,
            made,
            tuple((old.lower() if name == new.name else name, name) for name, _ in made.columns),
        )

    return change


def altered(
    old: str, new: str | None = None, after: str | None = None, comment: str | None = None
) -> Changing:
    """A column gets another name (None: it stays), place or comment, and keeps its type."""

    require_kind("old", old, str, _NAME, InvalidDefinition)
    require_kind("new", new, (str, type(None)), _NAME, InvalidDefinition)

    def change(record: TableRecord) -> ColumnChange:
        column = f"{quoted(old if new is None else new)} {declared_type(record, old.lower())}"
        return changed(old, column, after, comment)(record)

    return change


def typed(old: str, kind: str) -> Changing:
    """ALTER COLUMN … TYPE."""
    return changed(old, f"{quoted(old)} {kind}")


def dropped(names: Sequence[str]) -> Changing:
    """DROP COLUMN."""
    require_list("names", names, "each name as an argument of its own", InvalidDefinition)
    gone = [name.lower() for name in names]

    def change(record: TableRecord) -> ColumnChange:
        if not gone:
            raise InvalidDefinition(f"{record.name}: name the columns that go")
        for name in gone:
            declared_type(record, name)
        columns = tuple(pair for pair in record.columns if pair[0] not in gone)
        if not columns:
            raise InvalidDefinition(f"{record.name} would have no column; use DROP TABLE")
        return _with_columns(record, columns, record.comments)

    return change


def replaced(columns: str, comments: Mapping[str, str] | None = None) -> Changing:
    """REPLACE COLUMNS: columns that are not listed go, and new ones are NULL. As in Hive, a column
    has the comment that is given now, or none."""
    listed = parse_columns(columns)

    def change(record: TableRecord) -> ColumnChange:
        check_columns(record.name, listed)
        FileFormat.of(record.properties).refuse(listed)
        keys, present = dict(record.partition_columns), dict(record.columns)
        for column in listed:
            if column.name in keys:
                raise InvalidDefinition(
                    f"{record.name} is partitioned by {column.name}; leave it out of the columns"
                )
            if column.name in present:
                require_wider(record, column.name, column)
        texts = comments_of(record.name, listed, comments or {})
        of_keys = {name: text for name, text in record.comments.items() if name in keys}
        new = tuple((column.name, str(column.type)) for column in listed)
        return _with_columns(record, new, {**of_keys, **texts})

    return change


def _with_columns(
    record: TableRecord, columns: tuple[tuple[str, str], ...], comments: Mapping[str, str]
) -> ColumnChange:
    """The change to columns of which those that were there before keep their names."""
    names, before = dict(columns), dict(record.columns)
    for name in record.bucket_columns:
        if name not in names:
            raise InvalidDefinition(
                f"{record.name}: {name} decides the bucket of each row and can't be dropped"
            )
    every = {*names, *dict(record.partition_columns)}
    remaining_comments = {name: text for name, text in comments.items() if name in every}
    return ColumnChange(
        record,
        replace(record.with_columns(columns), comments=remaining_comments),
        tuple((name, name) for name in names if name in before),
    )
