"""Data contracts (Open Data Contract Standard 3): tables of a file, and a table as such a file.

The standard's own JSON schema, from the package of the extra `contract`, judges what is read. What
a file says and neither a declaration nor an expectation holds is listed with its place.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acid_platform.errors import InvalidDefinition
from acid_platform.handles.contract_rules import (
    Expectation,
    NotExpressed,
    expectation_of,
    expectations_of_options,
    rule_of,
)
from acid_platform.layout.names import table_name
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.table_properties import COMMENT
from acid_platform.layout.types import (
    Column,
    Constraint,
    ConstraintKind,
    HiveType,
    parse_columns,
    parse_type,
    struct_of,
)
from acid_platform.metastore.records import TableRecord
from acid_platform.tables.declaration import Declaration
from acid_platform.tables.table_constraints import declared_constraints

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse

Object = dict[str, Any]

VERSION = "v3.2.0"
VENDOR = "acid-platform"
"""Whose the customProperties are that hold what the standard has no words for."""
_CONSTRAINTS, _BUCKETS, _PROPERTIES = "constraints", "clusteredBy", "tableProperties"


@dataclass(slots=True)
class ContractTable:
    """A table as a contract says it. `left_out`: what it says besides, each with its place."""

    name: str
    declaration: Declaration
    expectations: list[Expectation] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def create(self, warehouse: Warehouse) -> None:
        """Makes the table. Raises TableExists, InvalidDefinition."""
        said = self.declaration
        columns, keys = (
            [f"{quoted(each.name)} {each.type}" for each in every]
            for every in (said.columns, said.partition_columns)
        )
        clustered = (said.bucket_columns, said.bucket_count) if said.bucket_count else None
        warehouse.create_table(
            self.name,
            ", ".join(columns),
            keys,
            clustered,
            said.properties,
            comments=said.comments,
            constraints=said.constraints,
        )

    def differences(self, record: TableRecord) -> list[str]:
        """In what the table that is there differs."""
        wanted = self.declaration.record(self.name, record.location)
        names = ("columns", "partition_columns", "comments", "bucket_columns", "bucket_count")
        found = [name for name in names if getattr(wanted, name) != getattr(record, name)]
        if {*wanted.constraints} != {*record.constraints}:
            found.append("constraints")
        other = any(record.properties.get(k) != v for k, v in wanted.properties.items())
        return [*found, *(["properties"] if other else [])]


def tables_of_contract(text: str, file: str) -> tuple[list[ContractTable], list[str]]:
    """The tables of a file in YAML, and what it says of no table.

    `file` is the file, for messages. Raises InvalidDefinition, which names the part that is wrong.
    """
    content = _valid(_loaded(text, file), file)
    if not str(content.get("apiVersion")).startswith("v3"):
        raise InvalidDefinition(f"{file}: apiVersion is {content.get('apiVersion')}; write v3.2.0")
    tables = [_table(each, file) for each in content.pop("schema", ())]
    for name in ("kind", "apiVersion"):
        content.pop(name, None)
    return tables, [f"{file}: {name}" for name in content]


def _loaded(text: str, file: str) -> object:
    yaml, _ = _packages()

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        """Dates stay texts, as the standard has them; few lines can't become gigabytes."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("a contract has no aliases (*name): write the part again")
            return super().compose_node(parent, index)

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{file} is no YAML: {error}") from error


def _packages() -> tuple[Any, Any]:
    try:
        import jsonschema
        import yaml

        if importlib.util.find_spec("open_data_contract_standard") is None:
            raise ModuleNotFoundError("open_data_contract_standard")
    except ModuleNotFoundError as missing:
        raise InvalidDefinition(
            f"contracts need a package: {missing}; pip install 'acid-platform[contract]'"
        ) from missing
    return yaml, jsonschema


def _valid(content: object, file: str) -> Object:
    """A copy of the content, if the standard's schema takes it. Raises InvalidDefinition."""
    _, jsonschema = _packages()
    spec = importlib.util.find_spec("open_data_contract_standard")
    assert spec is not None and spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0]) / "schema.json"
    schema = json.loads(path.read_text("utf-8"))
    judge = jsonschema.validators.validator_for(schema)(schema)
    copied: Object = json.loads(json.dumps(content))
    if error := jsonschema.exceptions.best_match(judge.iter_errors(_judged(copied))):
        where = ".".join(map(str, error.absolute_path)) or "the file"
        raise InvalidDefinition(
            f"{file} is no contract of the Open Data Contract Standard 3: {where}:"
            f" {error.message[:300]}"
        )
    return copied


def _judged(part: Any) -> Any:
    """Gives each property a logicalType: without one the schema asks for a `map`."""
    if isinstance(part, list):
        return [_judged(each) for each in part]
    if not isinstance(part, dict):
        return part
    same = {name: _judged(value) for name, value in part.items()}
    for each in same.get("properties") or ():
        if isinstance(each, dict) and "logicalType" not in each:
            each["logicalType"] = _logical(each.get("physicalType"))
    return same


def _logical(physical: object) -> str:
    try:
        return _TO_LOGICAL.get(parse_type(str(physical)).kind, "string")
    except InvalidDefinition:
        return "string"


# --- reading --------------------------------------------------------------------------------------


def _table(given: Object, file: str) -> ContractTable:
    name = table_name(given.pop("physicalName", None) or given["name"])
    where = f"{file}: {given.pop('name')}"
    for plain in ("physicalType", "logicalType"):
        if given.get(plain) in ("table", "object"):
            given.pop(plain)
    own = _own_properties(given)
    columns, keys = list[Column](), list[tuple[int, Column]]()
    comments, constraints, primary = dict[str, str](), list[Constraint](), list[tuple[int, str]]()
    expectations, left_out = list[Expectation](), list[str]()
    properties = given.pop("properties", [])
    for number, each in enumerate(properties):
        label = each.pop("name")
        hive = _type(each, f"{where}.{label}")
        column = Column((each.pop("physicalName", None) or label).lower(), hive)
        if text := each.pop("description", ""):
            comments[column.name] = text
        if each.pop("partitioned", False):
            keys.append((each.pop("partitionKeyPosition", number), column))
        else:
            columns.append(column)
            if each.pop("required", False):
                constraints.append(Constraint.not_null(column.name))
        if each.pop("primaryKey", False):
            primary.append((each.pop("primaryKeyPosition", number), column.name))
        if each.pop("unique", False):
            constraints.append(_declared(ConstraintKind.UNIQUE, (column.name,)))
        options, enum = each.get("logicalTypeOptions", {}), each.get("enum", [])
        expectations += expectations_of_options(options, enum, column.name)
        each |= {f"logicalTypeOptions.{name}": value for name, value in options.items()}
        each.pop("logicalTypeOptions", None)
        if all({*value} == {"value"} for value in enum):
            each.pop("enum", None)
        expectations += _expectations(each, column.name, f"{where}.{label}", left_out)
        left_out += _rest(each, f"{where}.{label}")
    expectations += _expectations(given, "", where, left_out)
    if primary:
        names = tuple(name for _, name in sorted(primary))
        constraints.append(_declared(ConstraintKind.PRIMARY_KEY, names))
    clustered = own.get(_BUCKETS)
    comment = given.pop("description", "")
    declaration = Declaration.of(
        name,
        tuple(columns),
        [f"{quoted(key.name)} {key.type}" for _, key in sorted(keys, key=lambda pair: pair[0])],
        (clustered["columns"], clustered["buckets"]) if clustered else None,
        {**own.get(_PROPERTIES, {}), **({COMMENT: comment} if comment else {})},
        comments=comments,
        constraints=[*constraints, *map(_constraint, own.get(_CONSTRAINTS, []))],
    )
    return ContractTable(name, declaration, expectations, [*left_out, *_rest(given, where)])


def _rest(given: Mapping[str, Any], where: str) -> list[str]:
    """What nobody took; a flag that is false says nothing."""
    return [f"{where}: {name}" for name, value in given.items() if value not in (False, [], None)]


def _own_properties(given: Object) -> Object:
    """What an export has added, taken out of `customProperties`."""
    every = given.pop("customProperties", [])
    own = {each["property"]: each["value"] for each in every if each.get("vendor") == VENDOR}
    if others := [each for each in every if each.get("vendor") != VENDOR]:
        given["customProperties"] = others
    return own


def _expectations(
    given: Object, column: str, where: str, left_out: list[str]
) -> Iterable[Expectation]:
    for rule in given.pop("quality", ()):
        label = f"{where}: rule {rule.get('name') or rule.get('id') or rule.get('metric') or ''}"
        try:
            found = expectation_of(rule, column)
        except NotExpressed as why:
            left_out.append(f"{label.rstrip()}: {why}")
            continue
        left_out += _rest(rule, label.rstrip())
        yield found


_LOGICAL = {
    **{"string": "string", "date": "date", "timestamp": "timestamp", "boolean": "boolean"},
    **{"i8": "tinyint", "i16": "smallint", "i32": "int", "i64": "bigint"},
    **{"f32": "float", "f64": "double", "u8": "smallint", "u16": "int", "u32": "bigint"},
}


def _type(given: Object, where: str) -> HiveType:
    """The type of a property, taken out of it. Raises InvalidDefinition for one without a type."""
    physical, logical = given.get("physicalType"), given.get("logicalType")
    if physical:
        try:
            found = parse_type(physical)
        except InvalidDefinition:
            pass
        else:
            given.pop("physicalType")
            given.pop("logicalType", None)
            return found
    options = given.get("logicalTypeOptions", {})
    given.pop("logicalType", None)
    if logical == "object" and "properties" in given:
        fields = given.pop("properties")
        return struct_of([(each["name"], _part(each, where)) for each in fields])
    if logical == "array" and "items" in given:
        return HiveType("array", (), (("element", _part(given.pop("items"), where)),))
    if logical == "map":
        sides = given.pop("map")
        pair = tuple((side, _part(sides[side], where)) for side in ("key", "value"))
        return HiveType("map", (), pair)
    if logical in ("integer", "number"):
        logical = options.pop("format", "i64" if logical == "integer" else "")
    if logical not in _LOGICAL:
        raise InvalidDefinition(
            f"{where} has no type of Hive: physicalType {physical!r}, logicalType {logical!r}; give"
            " it a physicalType such as decimal(9,2)"
        )
    return parse_type(_LOGICAL[logical])


def _part(given: Object, where: str) -> HiveType:
    """The type of a part of a nested one, which has nothing but a type."""
    label = f"{where}.{given.pop('name', 'items')}"
    found = _type(given, label)
    if rest := _rest({k: v for k, v in given.items() if k != "physicalType"}, label):
        raise InvalidDefinition(
            f"{rest[0]} of a part of a nested column is not kept: write the column's whole type"
            " as its physicalType, such as struct<a:int>, and leave its parts out"
        )
    return found


def _declared(kind: ConstraintKind, columns: tuple[str, ...]) -> Constraint:
    return Constraint("", kind, columns, enabled=False)


def _constraint(given: Object) -> Constraint:
    try:
        kind = ConstraintKind(given["kind"])
        lists = {name: tuple(given.get(name, ())) for name in ("columns", "parent_columns")}
        return Constraint(**{**given, "kind": kind, **lists})
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidDefinition(f"customProperties {_CONSTRAINTS}: {given}: {error}") from error


# --- writing --------------------------------------------------------------------------------------

_TO_LOGICAL = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("string", "char", "varchar"), "string"),
    **{"boolean": "boolean", "date": "date", "array": "array", "struct": "object"},
    **{"timestamp": "timestamp", "timestamp with local time zone": "timestamp"},
}


def contract_of(
    record: TableRecord, expectations: Sequence[Mapping[str, Any]] = (), version: str = "1.0.0"
) -> str:
    """The contract of a table with these expectations, in YAML. `version`: the contract's.

    Raises InvalidDefinition for an expectation about a column that the table does not have.
    """
    yaml, _ = _packages()
    keys = [name for name, _ in record.partition_columns]
    properties = {
        name: _property(record, name, kind, keys)
        for name, kind in (*record.columns, *record.partition_columns)
    }
    others = [each for each in record.constraints if not _expressed(record, each, properties)]
    own = {
        _CONSTRAINTS: [{**asdict(each), "kind": each.kind.value} for each in others],
        _BUCKETS: {"columns": list(record.bucket_columns), "buckets": record.bucket_count}
        if record.bucket_count
        else None,
        _PROPERTIES: {k: v for k, v in record.properties.items() if k != COMMENT},
    }
    table: Object = {"name": record.name.rpartition(".")[2], "physicalName": record.name}
    table["physicalType"] = "table"
    if comment := record.properties.get(COMMENT):
        table["description"] = comment
    table["properties"] = [*properties.values()]
    for each in expectations:
        column, rule = rule_of(each)
        if column and column.lower() not in properties:
            raise InvalidDefinition(f"{record.name} has no column {column!r}, but {rule} names it")
        judged = properties[column.lower()] if column else table
        judged.setdefault("quality", []).append(rule)
    if said := [
        {"property": name, "value": value, "vendor": VENDOR} for name, value in own.items() if value
    ]:
        table["customProperties"] = json.loads(json.dumps(said))
    content = {
        **{"apiVersion": VERSION, "kind": "DataContract", "id": record.name, "version": version},
        **{"status": "active", "name": record.name, "schema": [table]},
    }
    text: str = yaml.safe_dump(_valid(content, record.name), sort_keys=False, allow_unicode=True)
    return text


def _property(record: TableRecord, name: str, kind: str, keys: Sequence[str]) -> Object:
    found: Object = {"name": name, "physicalType": kind}
    if logical := _TO_LOGICAL.get(parse_type(kind).kind):
        found["logicalType"] = logical
    if comment := record.comments.get(name):
        found["description"] = comment
    if name in keys:
        found |= {"partitioned": True, "partitionKeyPosition": keys.index(name) + 1}
    return found


def _expressed(
    record: TableRecord, constraint: Constraint, properties: Mapping[str, Object]
) -> bool:
    """Writes the constraint as the standard has it, unless that would say less than it is."""
    columns, partitions = (
        parse_columns(", ".join(f"{quoted(name)} {kind}" for name, kind in pairs)) if pairs else ()
        for pairs in (record.columns, record.partition_columns)
    )
    usual = declared_constraints(record.name, columns, partitions, [replace(constraint, name="")])
    if usual != (replace(constraint, rely=False),) or constraint.rely:
        return False
    names = constraint.columns
    if constraint.kind is ConstraintKind.PRIMARY_KEY:
        for number, name in enumerate(names, 1):
            properties[name] |= {"primaryKey": True, "primaryKeyPosition": number}
    elif constraint.kind is ConstraintKind.NOT_NULL and constraint.enabled:
        properties[names[0]]["required"] = True
    elif constraint.kind is ConstraintKind.UNIQUE and len(names) == 1:
        properties[names[0]]["unique"] = True
    else:
        return False
    return True
