"""File formats of insert-only tables, from their table properties (F17), and how Hive reads the
files of an external table: its serde, with the characters that it splits at.

Of external tables only what is read exactly as Hive 4 reads it is taken; everything else is refused
by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.layout.table_properties import (
    CODEC,
    FIELD_DELIMITER,
    FILE_FORMAT,
    LAYOUT,
    NULL_TEXT,
    TRANSACTIONAL,
    TRANSACTIONAL_KIND,
)
from acid_platform.layout.types import LOCAL_ZONE, Column, HiveType

FORMATS = FILE_FORMAT.values.choices
"""`text` is Hive's delimited text: fields are separated by \\x01 and NULL is \\N, unless the table
properties `field.delim` and `serialization.null.format` say otherwise."""

_FLAT = ("csv", "text")
_HIVES = (FILE_FORMAT.values.default,)
"""The formats that store Hive's keys of rows, and that have the codecs of `orc.compress`."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The format of a table's data files, and whether they store the keys of their rows."""

    name: str = FILE_FORMAT.values.default
    options: Mapping[str, str] = field(default_factory=dict)
    """The `delimiter` and the `null` text of csv and text files."""
    keyed: bool = False
    """Whether rows have keys, so that single ones can be changed; those of an insert-only table
    have none."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> FileFormat:
        """The format in the table's properties. Raises InvalidDefinition for an unknown format."""
        name = FILE_FORMAT.text(properties)
        if name not in FORMATS:
            raise InvalidDefinition(
                f"{FILE_FORMAT.name}={name!r} is unknown; use {', '.join(FORMATS)}"
            )
        keyed = not is_insert_only(properties)
        if name not in _FLAT:
            return cls(name, keyed=keyed)
        delimiter = FIELD_DELIMITER.stated(properties)
        if delimiter is None:
            delimiter = "," if name == "csv" else "\x01"
        null = NULL_TEXT.stated(properties)
        if null is None:
            null = "" if name == "csv" else "\\N"
        return cls(name, {"delimiter": delimiter, "null": null}, keyed)

    @property
    def by_position(self) -> bool:
        """Whether columns of a file are identified by position, not by name."""
        return self.name in _FLAT

    @property
    def has_codec(self) -> bool:
        """Whether the table's `orc.compress` chooses how its files are compressed."""
        return self.name in _HIVES

    @property
    def is_hives(self) -> bool:
        """Whether readers of Hive's protocol find the rows in its files: of those with keys, Hive
        knows one format."""
        return not self.keyed or self.name in _HIVES

    @property
    def has_declared_types(self) -> bool:
        """Whether a file declares the types of its columns as Hive names them, so that one of
        others can be compared with its table; Spark's own reader reads it exactly then."""
        return self.keyed or self.name in _HIVES

    @property
    def has_column_ids(self) -> bool:
        """Whether a file has the id of each of its columns."""
        return self.keyed and self.name not in _HIVES

    @property
    def lacks_times(self) -> bool:
        """Whether files can't hold the last second before 1970, nor the earliest days."""
        return self.name in _HIVES

    def limited(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Those of its columns of which times are looked at before they are written."""
        return () if self.keyed and not self.lacks_times else columns

    def refuse(self, columns: tuple[Column, ...]) -> None:
        """Raises InvalidDefinition for a column that the format can't hold."""
        for column in columns:
            if self.name in _FLAT and (column.type.nested or column.type.kind == "binary"):
                raise InvalidDefinition(
                    f"{self.name} files can't store column {column}; use orc or parquet"
                )
            zoned = any(part.kind == LOCAL_ZONE for part in column.type.walk())
            if zoned and not (self.keyed or self.name in _HIVES):
                raise InvalidDefinition(
                    f"column {column}: {self.name} files can't distinguish an instant from a"
                    f" timestamp; use {' or '.join(_HIVES)}"
                )


ACID_FORMAT = FileFormat(keyed=True)
"""What tables with full CRUD are written in, unless they say otherwise."""
KEYED_FORMATS = (ACID_FORMAT.name, "parquet")
"""The formats that can store keys."""


def compression(properties: Mapping[str, str]) -> str:
    """The table's `orc.compress`, spelled as Spark and Arrow expect it."""
    codec = CODEC.text(properties)
    return "uncompressed" if codec == "none" else codec


def is_insert_only(properties: Mapping[str, str]) -> bool:
    """Whether the table is insert-only: its rows are only appended or overwritten (F5)."""
    return TRANSACTIONAL_KIND.text(properties) == "insert_only"


NEW_CODEC = "ZSTD"
"""The codec of new tables, unless their layout is Hive 3's: it is written as fast as ZLIB, and
read in half of the time. Tables that state none, as those of Hive, Trino and older versions, have
ZLIB."""


def with_codec(properties: dict[str, str]) -> dict[str, str]:
    """The properties, which state the codec if their files have one."""
    if FileFormat.of(properties).has_codec and LAYOUT.text(properties) != "hive3":
        return {CODEC.name: NEW_CODEC, **properties}
    return properties


def without_default(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties as a record has them: the format is there if it is not the default."""
    stated = dict(properties)
    if FILE_FORMAT.text(stated) == FILE_FORMAT.values.default:
        stated.pop(FILE_FORMAT.name, None)
    return stated


LAZY_SIMPLE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_SERDES = {
    LAZY_SIMPLE: "text",
    "org.apache.hadoop.hive.serde2.OpenCSVSerde": "csv",
    "org.apache.hadoop.hive.serde2.JsonSerDe": "json",
    "org.apache.hive.hcatalog.data.JsonSerDe": "json",
    "org.apache.hadoop.hive.ql.io.orc.OrcSerde": "orc",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe": "parquet",
}
SERDE_OF = MappingProxyType(
    {
        "text": LAZY_SIMPLE,
        "csv": "org.apache.hadoop.hive.serde2.OpenCSVSerde",
        "json": "org.apache.hadoop.hive.serde2.JsonSerDe",
    }
)
LINES = ("text", "csv", "json")
"""Formats in which a line is a row."""
HEADER = "skip.header.line.count"
FIELD, ITEM, KEY = FIELD_DELIMITER.name, "collection.delim", "mapkey.delim"
ESCAPE, NULL = "escape.delim", NULL_TEXT.name
SEPARATOR, QUOTE, ESCAPED_BY = "separatorChar", "quoteChar", "escapeChar"
_SPELLINGS = {"serialization.format": FIELD, "colelction.delim": ITEM}
"""Names that Hive also reads, and `field.delim` wins; the second is how Hive 2 misspelt it."""
_OPTIONS = {
    "text": {FIELD: "\x01", ITEM: "\x02", KEY: "\x03", ESCAPE: "", NULL: "\\N", HEADER: "0"},
    "csv": {SEPARATOR: ",", QUOTE: '"', ESCAPED_BY: "\\", HEADER: "0"},
    "json": {HEADER: "0"},
    "orc": {},
    "parquet": {},
}
"""The options of each format, and what holds without them."""
_DEEPER = "\x04\x05\x06\x07\x08"
"""Hive's separators of the levels below those that have a name."""
_REFUSED = {
    "skip.footer.line.count": "",
    TRANSACTIONAL.name: "false",
    TRANSACTIONAL_KIND.name: "",
    "external.table.purge": "false",
    "serialization.last.column.takes.rest": "false",
    "serialization.encoding": "utf-8",
    "timestamp.formats": "",
    "textinputformat.record.delimiter": "",
    "line.delim": "\n",
    "hive.serialization.extend.nesting.levels": "false",
    "hive.serialization.extend.additional.nesting.levels": "false",
    "ignore.malformed.json": "false",
    "case.insensitive": "true",
}
"""Properties that change the rows or what happens to the files, and the only value that is read."""


def external_format(
    table: str,
    stored: str,
    serde: str,
    options: Mapping[str, str],
    properties: Mapping[str, str],
) -> FileFormat:
    """The format of the files.

    `stored`: `text`, `json`, `orc` or `parquet`, from STORED AS; empty without it. `serde`: a class
    of Hive, or empty. `options` are those of the serde; those among the table's `properties` count
    as well, as in Hive. Raises UnsupportedStatement for what would be read otherwise than by Hive.
    """
    name = _SERDES.get(serde, "") if serde else stored or "text"
    if name not in _OPTIONS or stored not in ("", "text", name):
        known = ", ".join(sorted({each.rpartition(".")[2] for each in _SERDES}))
        raise UnsupportedStatement(
            f"{table}: {serde or stored!r} is not read; {known} are, and STORED AS TEXTFILE,"
            " JSONFILE, ORC and PARQUET"
        )
    values = dict(_OPTIONS[name])
    named = {**properties, **options}
    for spelling, key in _SPELLINGS.items():
        text = named.pop(spelling, None)
        if text is not None and name == "text":
            named.setdefault(key, text)
    for key, text in named.items():
        if (allowed := _REFUSED.get(key.lower())) is not None and text.lower() != allowed:
            raise UnsupportedStatement(
                f"{table}: {key}={text!r} is not supported for an external table; leave it out"
            )
        if key in values:
            values[key] = text
        elif key in options and key.lower() not in _REFUSED:
            raise UnsupportedStatement(
                f"{table}: the serde has no option {key!r} here; leave it out"
            )
    if not values.get(HEADER, "0").isdigit():
        raise InvalidDefinition(f"{table}: {HEADER}={values[HEADER]!r} is no number of lines")
    for key in (FIELD, ITEM, KEY, ESCAPE, SEPARATOR, QUOTE, ESCAPED_BY):
        if values.get(key):
            values[key] = _one_character(table, key, values[key], by_number=name == "text")
    if name == "csv" and values[ESCAPED_BY] == '"':
        values[ESCAPED_BY] = "\\"  # so does Hive: its reader takes no escape that is the quote
    taken = [values[key] for key in (FIELD, ITEM, KEY, ESCAPE, SEPARATOR, QUOTE) if values.get(key)]
    if len({*taken}) < len(taken) or {"\n", "\r"} & {*taken}:
        raise InvalidDefinition(
            f"{table}: delimiters, quotes and the escape differ from each other and from line ends"
        )
    return FileFormat(name, values)


def stated_options(external_format: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options that differ from what holds without them."""
    without = _OPTIONS[external_format]
    return {name: text for name, text in options.items() if text != without[name]}


def separators(stored: FileFormat) -> str:
    """The characters at which text is split: fields, then each level of nested values."""
    options = stored.options
    return options[FIELD] + options[ITEM] + options[KEY] + _DEEPER


def _one_character(table: str, key: str, text: str, by_number: bool) -> str:
    """The character that an option means; Hive also takes the number of one."""
    if by_number and text.lstrip("-").isdigit() and text.isascii() and 0 < int(text) < 128:
        return chr(int(text))
    if len(text) != 1 or not text.isascii():
        raise UnsupportedStatement(f"{table}: {key}={text!r} is more than one ASCII character")
    return text


def readable_columns(
    table: str, stored: FileFormat, columns: Sequence[Column]
) -> tuple[Column, ...]:
    """The columns as they are read: OpenCSVSerde makes each of them a string, as in Hive.

    Raises UnsupportedStatement for a type that the format's reader can't read exactly.
    """
    if stored.name == "csv":
        return tuple(Column(column.name, HiveType("string")) for column in columns)
    for column in columns if stored.name in LINES else ():
        for part in column.type.walk():
            if part.kind in ("binary", LOCAL_ZONE):
                raise UnsupportedStatement(
                    f"{table}: column {column} can't be read from {stored.name} files; declare it"
                    " string"
                )
        if stored.name == "text" and depth(column.type) >= len(separators(stored)):
            raise UnsupportedStatement(
                f"{table}: column {column} is nested deeper than Hive's text format reads"
            )
    return tuple(columns)


def depth(kind: HiveType) -> int:
    """How many separators below that of fields a value needs."""
    own = {"map": 2}.get(kind.kind, 1) if kind.nested else 0
    return own + max((depth(child) for _, child in kind.children), default=0)
