"""Hive column types: parsing and printing in Hive's notation; and what the rows of a column have to
fulfil, or are only declared to."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from acid_platform.base.arguments import nearest_name, require_kind
from acid_platform.base.file_bounds import MOST_NESTED
from acid_platform.errors import InvalidDefinition, UnknownColumn
from acid_platform.layout.sql_text import quoted

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
SIMPLE = frozenset(
    (*INTEGRAL, "boolean", "float", "double", "string", "binary", "date", "timestamp")
)
LOCAL_ZONE = "timestamp with local time zone"
_SYNONYMS = {
    "integer": "int",
    "numeric": "decimal",
    "dec": "decimal",
    **dict.fromkeys(("timestamplocaltz", "timestampltz", "timestamp_ltz"), LOCAL_ZONE),
}
_MEANT = {
    **dict.fromkeys(("text", "str", "clob", "nvarchar", "varchar2", "json", "uuid"), "string"),
    **dict.fromkeys(("number", "money"), "decimal(18,2)"),
    **dict.fromkeys(("long", "int8", "int64", "bignumeric"), "bigint"),
    **dict.fromkeys(("short", "int2", "int16"), "smallint"),
    **dict.fromkeys(("int4", "int32", "mediumint", "serial"), "int"),
    **dict.fromkeys(("real", "float4", "float32"), "float"),
    **dict.fromkeys(("float8", "float64"), "double"),
    **dict.fromkeys(("blob", "bytes", "bytea", "varbinary"), "binary"),
    **dict.fromkeys(("datetime", "timestamptz", "time", "timestamp_ntz"), "timestamp"),
    **{"bool": "boolean", "byte": "tinyint", "list": "array<string>", "dict": "map<string,string>"},
}
"""What types of other systems are called here."""
TIMESTAMPS = ("timestamp", LOCAL_ZONE)
FRACTIONS = ("float", "double")
CHAR_TYPES = ("char", "varchar")
"""Text types with a maximum length."""
TEXTS = ("string", *CHAR_TYPES)
UNNAMED = ("char", LOCAL_ZONE)
"""Partition column types that are read but not written, because Hive's directory names for their
values are not reproduced."""
_LONGEST = {"char": 255, "varchar": 65535}

_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|`(?:[^`]|``)*`|\d+|[<>(),:])")
_FIELD = re.compile(r"\s*+(?:(`(?:[^`]|``)*+`)\s*+|([^`<>(),:]++))(?=:)")
"""A field of a struct, which stands without backticks in Hive's texts, whatever it is called.
Nothing is tried twice, however many blanks there are."""
LONGEST_TYPE, _KEPT_TYPE = 1 << 18, 1000
"""Characters of a type, and of one that is remembered."""


@dataclass(frozen=True, slots=True)
class HiveType:
    """A type: `kind` as Hive spells it, sizes of decimal, char and varchar, and child types.

    Children have names: `element` in an array, `key` and `value` in a map, field names in a struct.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    children: tuple[tuple[str, HiveType], ...] = ()

    @property
    def nested(self) -> bool:
        return bool(self.children)

    def walk(self) -> Iterator[HiveType]:
        """This type and all types nested in it, in the order of ORC's column numbers."""
        yield self
        for _, child in self.children:
            yield from child.walk()

    @property
    def has_char(self) -> bool:
        """Whether it is CHAR, or contains one."""
        return any(part.kind == "char" for part in self.walk())

    @property
    def is_told(self) -> bool:
        """Whether an engine, which has strings and timestamps only, has to be told the type."""
        return (
            self.kind in CHAR_TYPES
            or self.has_char
            or any(part.kind == LOCAL_ZONE for part in self.walk())
        )

    def __str__(self) -> str:
        if self.kind == "struct":
            return "struct<" + ",".join(f"{name}:{child}" for name, child in self.children) + ">"
        if self.children:
            return f"{self.kind}<" + ",".join(str(child) for _, child in self.children) + ">"
        return self.kind + (f"({','.join(map(str, self.sizes))})" if self.sizes else "")


def struct_of(fields: Iterable[tuple[str, HiveType]]) -> HiveType:
    """A struct with these fields, whose names become lower case.

    Hive writes types as texts without backticks. Its releases 3 and 4 read back letters, digits,
    `_`, `.` and blanks in names. Raises InvalidDefinition for another name, and for one twice.
    """
    children = tuple((name.lower(), kind) for name, kind in fields)
    seen = set[str]()
    for name, _ in children:
        if name != name.strip() or not name or not all(map(_is_name_character, name)):
            raise InvalidDefinition(
                f"a field of a struct can't be called {name!r}: Hive reads back only letters,"
                " digits, '_', '.' and blanks inside of its name; rename the field"
            )
        if name in seen:
            raise InvalidDefinition(
                f"a struct has the field {name!r} twice, as letter case is ignored; rename one"
            )
        seen.add(name)
    return HiveType("struct", (), children)


def _is_name_character(character: str) -> bool:
    """As Java's Character.isLetterOrDigit, for a char of 16 bits."""
    kinds = ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd")
    return character in "_. " or (
        ord(character) < 1 << 16 and unicodedata.category(character) in kinds
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A table or partition column; names are lower case, as in Hive."""

    name: str
    type: HiveType
    id: int = field(default=0, compare=False)
    """By which files of some formats know it; 0: it has none, or nobody asks."""

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


_NESTED = 1_100_000_000


def nested_id(column: int, path: str) -> int:
    """The id of a field inside of a column, from 1,100,000,000 up to 1,900,000,000; `path`: such as
    `element` or `value.name`. It follows from that, and stays whatever fields come beside it."""
    return _NESTED + zlib.crc32(f"{column}.{path}".encode()) % 800_000_000


def of_value(hive: HiveType) -> HiveType:
    """The type that a column's values have in expressions: Spark has no CHAR and no VARCHAR."""
    if hive.kind in CHAR_TYPES:
        return HiveType("string")
    if hive.kind == LOCAL_ZONE:
        return HiveType("timestamp")
    return HiveType(
        hive.kind, hive.sizes, tuple((name, of_value(child)) for name, child in hive.children)
    )


def require_columns(names: Iterable[str], columns: Sequence[Column], table: str) -> None:
    """Raises UnknownColumn for the first name that the table lacks; ignores letter case."""
    own = {column.name for column in columns}
    for name in names:
        if name.lower() not in own:
            raise unknown_column(name, table, columns)


def matched_columns(names: Sequence[str], columns: Sequence[Column], table: str) -> dict[str, int]:
    """The place of each of the table's columns among the names; raises UnknownColumn for a name
    that the table lacks, and for one twice."""
    require_columns(names, columns, table)
    places: dict[str, int] = {}
    for index, name in enumerate(map(str.lower, names)):
        if name in places:
            raise UnknownColumn(f"column {name!r} of {table} is given twice")
        places[name] = index
    return places


def unknown_column(name: str, table: str, columns: Sequence[Column]) -> UnknownColumn:
    """The error for a name that is not a column; it suggests a similar one."""
    names = [column.name for column in columns]
    near = nearest_name(name.lower(), names)
    hint = f"; did you mean {near}?" if near else ""
    if name.startswith("__index_level_"):
        hint = "; it is the index of a pandas frame: write the frame with index=False"
    return UnknownColumn(
        f"{table} has no column {name!r}; its columns are {', '.join(names)}{hint}"
    )


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_TYPE:
            raise InvalidDefinition(
                f"{text[:60]!r}… has {len(text):,} characters; a type, or the columns that are"
                f" declared in one text, may have {LONGEST_TYPE:,}"
            )
        self.text = text.rstrip()
        self.at = 0
        """The place of the next token."""
        self.depth = 0

    def error(self, why: str) -> InvalidDefinition:
        return InvalidDefinition(f"{self.text[:300]!r}: {why}; write e.g. 'id int, v decimal(7,2)'")

    def _match(self) -> re.Match[str] | None:
        if self.at >= len(self.text):
            return None
        match = _TOKEN.match(self.text, self.at)
        if not match:
            raise self.error(f"can't read {self.text[self.at :].strip()!r}")
        return match

    def peek(self) -> str:
        match = self._match()
        return match[1] if match else ""

    def next(self) -> str:
        match = self._match()
        if not match:
            raise self.error("unexpected end")
        self.at = match.end()
        return match[1]

    def expect(self, token: str) -> None:
        start = self.at
        if self.next() != token:
            raise self.error(f"{token!r} expected before {self.text[start:].strip()!r}")

    def name(self) -> str:
        token = self.next()
        if token in "<>(),:" or token.isdigit():
            raise self.error(f"a name expected, found {token!r}")
        return _unquoted(token).lower()

    def type(self) -> HiveType:
        """Raises InvalidDefinition, also for a type that is nested too deeply."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self.error(f"types are nested deeper than {MOST_NESTED} levels")
        parsed = self._type()
        self.depth -= 1
        return parsed

    def _type(self) -> HiveType:
        kind = self.name()
        kind = _SYNONYMS.get(kind, kind)
        if kind == "array":
            return HiveType("array", (), (("element", self._inside()),))
        if kind == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return HiveType("map", (), (("key", key), ("value", value)))
        if kind == "struct":
            return struct_of(list(self._fields()))
        if kind == "decimal":
            return self._decimal()
        if kind in ("char", "varchar"):
            sizes = self._sizes()
            if len(sizes) != 1 or not 1 <= sizes[0] <= _LONGEST[kind]:
                raise self.error(f"{kind} needs one length, from 1 to {_LONGEST[kind]}")
            return HiveType(kind, sizes)
        if kind == "timestamp" and self.peek().lower() == "with":
            words = [self.name() for _ in range(4)]
            if words != ["with", "local", "time", "zone"]:
                raise self.error("'timestamp with local time zone' expected")
            return HiveType(LOCAL_ZONE)
        if kind not in SIMPLE and kind != LOCAL_ZONE:
            near = meant_type(kind)
            raise self.error(f"unknown type {kind!r}" + (f"; did you mean {near}?" if near else ""))
        return HiveType(kind)

    def _inside(self) -> HiveType:
        self.expect("<")
        child = self.type()
        self.expect(">")
        return child

    def _fields(self) -> Iterator[tuple[str, HiveType]]:
        self.expect("<")
        while True:
            match = _FIELD.match(self.text, self.at)
            if not match:
                raise self.error(f"a field expected before {self.text[self.at :].strip()!r}")
            self.at = match.end()
            self.expect(":")
            yield _unquoted(match[1] or match[2]), self.type()
            token = self.next()
            if token == ">":
                return
            if token != ",":
                raise self.error("',' or '>' expected in a struct")

    def _sizes(self) -> tuple[int, ...]:
        if self.peek() != "(":
            return ()
        self.next()
        sizes = []
        while True:
            token = self.next()
            if not token.isdigit():
                raise self.error(f"a number expected, found {token!r}")
            sizes.append(int(token))
            if self.next() == ")":
                return tuple(sizes)

    def _decimal(self) -> HiveType:
        sizes = self._sizes()
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])[:2] if len(sizes) < 3 else (0, 0)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self.error("decimal takes (precision 1 to 38, scale 0 to precision)")
        return HiveType("decimal", (precision, scale))


def meant_type(word: str) -> str | None:
    """The type that a word means in another system, or that is nearly written so."""
    return _MEANT.get(word) or nearest_name(word, (*SIMPLE, "decimal", "varchar", "array"), 0.7)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name.strip()


def parse_type(text: str) -> HiveType:
    """`'array<decimal(7,2)>'` → HiveType. Raises InvalidDefinition."""
    return _short_type(text) if len(text) <= _KEPT_TYPE else _parsed(text)


@lru_cache(maxsize=4096)
def _short_type(text: str) -> HiveType:
    return _parsed(text)


def _parsed(text: str) -> HiveType:
    parser = _Parser(text)
    parsed = parser.type()
    if parser.peek():
        raise parser.error(f"{parser.peek()!r} is left over")
    return parsed


def folded(name: str) -> str:
    """What all spellings of a name share for Spark and ORC, which compare letter by letter.

    For them the long s is an s, and the dotless i an i.
    """
    upper = (character.upper() if len(character.upper()) == 1 else character for character in name)
    return "".join(
        character.lower() if len(character.lower()) == 1 else character for character in upper
    )


def parse_columns(text: str) -> tuple[Column, ...]:
    """`'id int, v string'` → columns, names in lower case. Raises InvalidDefinition."""
    require_kind("columns", text, str, "a text such as 'id int, v string'", InvalidDefinition)
    parser = _Parser(text)
    columns: dict[str, Column] = {}
    while True:
        name = parser.name()
        if name in columns:
            raise parser.error(f"column {name!r} is named twice")
        if parser.peek() in ("", ","):
            raise InvalidDefinition(
                f"column {name!r} has no type; write e.g. '{name} string' or '{name} date'"
            )
        columns[name] = Column(name, parser.type())
        if not parser.peek():
            return tuple(columns.values())
        parser.expect(",")


class ConstraintKind(Enum):
    """The words by which SQL declares a constraint."""

    NOT_NULL = "NOT NULL"
    DEFAULT = "DEFAULT"
    CHECK = "CHECK"
    PRIMARY_KEY = "PRIMARY KEY"
    FOREIGN_KEY = "FOREIGN KEY"
    UNIQUE = "UNIQUE"


DECLARED_ONLY = (ConstraintKind.PRIMARY_KEY, ConstraintKind.FOREIGN_KEY, ConstraintKind.UNIQUE)
"""Kinds that are shown to planners and people, and that no write is checked for, as in Hive."""
OF_ROWS = (ConstraintKind.NOT_NULL, ConstraintKind.CHECK)
"""Kinds that each row of an enabled constraint fulfils."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint; make one with a function of this class, such as `Constraint.check("n > 0")`.

    `text`: the SQL of a CHECK's condition or of a DEFAULT. Names of columns are in lower case.
    """

    name: str
    """Empty: one is made from the names of the table and the columns."""
    kind: ConstraintKind
    columns: tuple[str, ...] = ()
    text: str = ""
    enabled: bool = True
    """Whether writes are checked; never for PRIMARY KEY, FOREIGN KEY and UNIQUE."""
    rely: bool = False
    """Whether planners may take it for true although nobody checks it."""
    parent: str = ""
    """The table `db.t` that a FOREIGN KEY refers to."""
    parent_columns: tuple[str, ...] = ()

    @classmethod
    def not_null(cls, column: str, name: str = "") -> Constraint:
        return cls(name, ConstraintKind.NOT_NULL, (column.lower(),))

    @classmethod
    def check(cls, condition: str, name: str = "") -> Constraint:
        """No row for which the condition is false; NULL is not false."""
        return cls(name, ConstraintKind.CHECK, text=condition)

    @classmethod
    def default(cls, column: str, value: str, name: str = "") -> Constraint:
        """`value`: SQL of a literal, a CAST of one, or CURRENT_DATE, CURRENT_TIMESTAMP."""
        return cls(name, ConstraintKind.DEFAULT, (column.lower(),), value)

    @property
    def of_rows(self) -> bool:
        """Whether rows are checked for it."""
        return self.enabled and self.kind in OF_ROWS

    @property
    def condition(self) -> str:
        """SQL of what is not false for any row, of a kind of OF_ROWS."""
        if self.kind is ConstraintKind.NOT_NULL:
            return f"{quoted(self.columns[0])} IS NOT NULL"
        return self.text

    def __str__(self) -> str:
        """As SQL declares it for the table, without its name."""
        words = self.kind.value
        if self.kind is ConstraintKind.CHECK:
            return f"{words} ({self.text})"
        names = ", ".join(map(quoted, self.columns))
        if self.kind is ConstraintKind.DEFAULT:
            return f"{words} {self.text}"
        if self.kind is ConstraintKind.FOREIGN_KEY:
            parent = ".".join(map(quoted, self.parent.split(".")))
            others = ", ".join(map(quoted, self.parent_columns))
            return f"{words} ({names}) REFERENCES {parent} ({others})"
        return f"{words} ({names})"


@dataclass(frozen=True, slots=True)
class RowChecks:
    """What a statement has to know of a table's constraints. `table` is for messages."""

    table: str = ""
    constraints: tuple[Constraint, ...] = ()
    """Those of which each row is checked."""
    defaults: dict[str, str] = field(default_factory=dict)
    """SQL of the value of a column that the rows leave out, in the column's type."""

    def violation(self, constraint: Constraint) -> str:
        """What is wrong with a row, on one line, for messages; its values follow."""
        declared = " ".join(str(constraint).split())
        return f"constraint {constraint.name} of {self.table}, {declared}, is violated by a row"


NO_CHECKS = RowChecks()
