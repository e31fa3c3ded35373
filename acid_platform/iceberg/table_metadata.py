"""The metadata of one table in a directory: snapshots, manifests, and what names the newest.

Everything that a snapshot names is written and synced before the file that tells of the snapshot,
and that before `version-hint.text`, which readers look at first. So whoever is killed in between
leaves files that nobody reads, and the next export removes them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from acid_platform.errors import CorruptFile
from acid_platform.iceberg.avro_files import (
    ADDED,
    LIVE,
    REMOVED,
    entries_of,
    list_bytes,
    manifest_bytes,
    read,
)
from acid_platform.iceberg.columns import Json, Plain, highest_id, single_value
from acid_platform.metastore.pasts import TableCommit
from acid_platform.storage.durability import replace_file, sync
from acid_platform.storage.files import Files

DATA, DELETES = 0, 1
"""What a manifest lists: files of rows, or of deleted positions."""
_HINT = "version-hint.text"
_UNNAMED = "unnamed.json"
_MOST_SMALL = 40
"""So many manifests with fewer than `_SMALL` entries become one."""
_SMALL = 1000
GRACE = 3_600_000
"""Milliseconds for which files stay that no snapshot names any more: readers may have loaded older
metadata, and another export may be about to name them."""
_MAIN = "main"
"""The branch of each table, whose snapshot is the newest."""
_MOMENT = "acid.moment"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A row of a list of manifests, and the entries of the manifest."""

    row: Json
    entries: tuple[Json, ...]

    @property
    def live(self) -> list[Json]:
        return [entry for entry in self.entries if entry["status"] != REMOVED]


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit changes: files of rows and of deleted positions, as Iceberg's `data_file`."""

    added: Sequence[Json] = ()
    removed: Collection[str] = ()
    """Paths of files of rows, and of deleted positions."""
    deletes: Sequence[Json] = ()


@dataclass(slots=True)
class TableMetadata:
    """The metadata as it was loaded, with the commits that were told since then; `write` makes them
    visible."""

    files: Files
    path: str
    """The directory that has the directory `metadata`."""
    uuid: str
    spec: list[Json]
    kinds: list[str]
    """The types of the fields of the spec."""
    version: int = 0
    sequence: int = 0
    schemas: list[Json] = field(default_factory=list)
    snapshots: list[Json] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    manifests: list[Manifest] = field(default_factory=list)
    """Those of the newest snapshot."""
    written: list[str] = field(default_factory=list)
    """The files that `write` has to sync."""
    last_column: int = 0
    _refs: Json = field(default_factory=dict)
    """The snapshots that have names."""
    _now: Json = field(default_factory=dict)
    """The schema of the snapshot that is being told."""

    @property
    def _directory(self) -> str:
        return f"{self.path}/metadata"

    def where(self, path: str) -> str:
        """The path as readers get it: a plain one on this machine, or a URI."""
        return path if self.files.local else self.files.uri(path)

    def inside(self, where: str) -> str:
        """The path of a file beside the metadata that readers get so."""
        return where if self.files.local else f"{self._directory}/{where.rpartition('/')[2]}"

    # --- loading -------------------------------------------------------------------------------

    def load(self) -> TableMetadata:
        """Takes up what is there: nothing if it is of another table, or can't be read."""
        try:
            self.version = int(self.files.read(f"{self._directory}/{_HINT}"))
            told = json.loads(self.files.read(self._document(self.version)))
            same = (told["table-uuid"], told["location"]) == (self.uuid, self.where(self.path))
            if same and told["partition-specs"][0]["fields"] == self.spec:
                self.snapshots, self.schemas = told["snapshots"], told["schemas"]
                self.sequence, self.properties = told["last-sequence-number"], told["properties"]
                self.last_column, self._refs = told["last-column-id"], told["refs"]
                self.manifests = self._manifests(self.snapshots[-1])
        except (FileNotFoundError, ValueError, LookupError, TypeError, CorruptFile):
            self.begin_again()
        return self

    def _document(self, version: int) -> str:
        return f"{self._directory}/v{version}.metadata.json"

    def _listed(self, snapshot: Json) -> list[Json]:
        where = self.inside(snapshot["manifest-list"])
        return read(self.files.read(where), where)

    def _manifests(self, snapshot: Json) -> list[Manifest]:
        return [Manifest(row, tuple(self._entries(row))) for row in self._listed(snapshot)]

    def _entries(self, row: Json) -> list[Json]:
        where = self.inside(row["manifest_path"])
        return entries_of(self.files.read(where), where, self.spec, self.kinds)

    # --- what is told --------------------------------------------------------------------------

    @property
    def newest_file(self) -> str:
        """The path of the newest metadata file."""
        return self._document(self.version)

    @property
    def last(self) -> TableCommit | None:
        """The last commit that was told."""
        return _commit_of(self.snapshots[-1]) if self.snapshots else None

    def begin_again(self) -> None:
        """Forgets everything but the number of the version."""
        self.snapshots, self.schemas, self.manifests = [], [], []
        self.sequence, self.last_column = 0, 0

    def live(self, content: int) -> list[Json]:
        """The files of the newest snapshot."""
        return [
            entry["data_file"]
            for manifest in self.manifests
            if manifest.row["content"] == content
            for entry in manifest.live
        ]

    def new_file(self, name: str) -> str:
        """The path of a new file beside the metadata."""
        self.files.make_directory(self._directory)
        return f"{self._directory}/{uuid.uuid4()}-{name}"

    def retyped(self, fields: list[Json], part: str = "doc") -> set[int]:
        """The columns of which this part differs from that in the newest snapshot."""
        schemas = {schema["schema-id"]: schema["fields"] for schema in self.schemas}
        last = schemas[self.snapshots[-1]["schema-id"]] if self.snapshots else []
        before = {column["id"]: column[part] for column in last}
        return {each["id"] for each in fields if before.get(each["id"], each[part]) != each[part]}

    # --- one commit ----------------------------------------------------------------------------

    def tell(self, commit: TableCommit, fields: list[Json], change: Change) -> None:
        """Adds a snapshot; `fields`: the schema of then."""
        self._now, retyped = self._schema(fields)
        self.sequence += 1
        told: list[Manifest] = []
        for manifest in self.manifests:
            kept = self._without(manifest, commit, change.removed, retyped)
            if kept is not None:
                told.append(kept)
        for content, files in ((DATA, change.added), (DELETES, change.deletes)):
            if files:
                entries = [
                    {
                        "status": ADDED,
                        "snapshot_id": commit.moment,
                        "sequence_number": self.sequence,
                        "file_sequence_number": self.sequence,
                        "data_file": {"content": content, "file_format": "PARQUET", **file},
                    }
                    for file in files
                ]
                told.append(self._manifest(content, entries, commit))
        self.manifests = self._merged(told, commit)
        parent = self.snapshots[-1]["snapshot-id"] if self.snapshots else None
        path = self.new_file(f"snap-{commit.moment}.avro")
        notes = {
            "snapshot-id": str(commit.moment),
            "parent-snapshot-id": str(parent) if parent is not None else "null",
            "sequence-number": str(self.sequence),
            "format-version": "2",
        }
        self._put(path, list_bytes([manifest.row for manifest in self.manifests], notes))
        snapshot = {
            "snapshot-id": commit.moment,
            "sequence-number": self.sequence,
            "timestamp-ms": commit.at,
            "manifest-list": self.where(path),
            "schema-id": self._now["schema-id"],
            "summary": self._summary(commit, change),
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        self.snapshots.append(snapshot)

    def _summary(self, commit: TableCommit, change: Change) -> dict[str, str]:
        gone = bool(change.deletes or change.removed)
        operation = "overwrite" if change.added and gone else "delete" if gone else "append"
        if not commit.write_id:
            operation = "replace"
        return {
            "operation": operation,
            "acid.write-id": str(commit.write_id),
            "acid.transaction": str(commit.txn_id),
            _MOMENT: str(commit.moment),
        }

    def _schema(self, fields: list[Json]) -> tuple[Json, set[int]]:
        """The schema with these fields, and the columns that have another type than in the
        schema before."""
        retyped = self.retyped(fields, "type")
        self.last_column = max(self.last_column, highest_id(fields))
        for schema in self.schemas:
            if schema["fields"] == fields:
                return schema, retyped
        number = max((schema["schema-id"] for schema in self.schemas), default=-1) + 1
        schema = {"type": "struct", "schema-id": number, "fields": fields}
        self.schemas.append(schema)
        return schema, retyped

    def _without(
        self, manifest: Manifest, commit: TableCommit, removed: Collection[str], retyped: set[int]
    ) -> Manifest | None:
        """The manifest without these files and bounds; None if it has no file left.

        Bounds are stored as the type of the column then has them."""
        live, content = manifest.live, manifest.row["content"]
        if not live:
            return None
        again = bool(retyped) and content == DATA
        if not again and not any(entry["data_file"]["file_path"] in removed for entry in live):
            return manifest
        entries = []
        for entry in live:
            file, gone = entry["data_file"], entry["data_file"]["file_path"] in removed
            for name in ("lower_bounds", "upper_bounds") if again else ():
                bounds = [each for each in file[name] or () if each["key"] not in retyped]
                file = {**file, name: bounds or None}
            changed = (
                {"status": REMOVED, "snapshot_id": commit.moment} if gone else {"status": LIVE}
            )
            entries.append({**entry, **changed, "data_file": file})
        return self._manifest(content, entries, commit)

    def _merged(self, manifests: list[Manifest], commit: TableCommit) -> list[Manifest]:
        """The manifests, where many small ones become one."""
        for content in (DATA, DELETES):
            small, others = list[Manifest](), list[Manifest]()
            for each in manifests:
                is_small = each.row["content"] == content and len(each.entries) < _SMALL
                (small if is_small else others).append(each)
            if len(small) <= _MOST_SMALL:
                continue
            entries = [
                entry if entry["snapshot_id"] == commit.moment else {**entry, "status": LIVE}
                for each in small
                for entry in each.entries
                if entry["status"] != REMOVED or entry["snapshot_id"] == commit.moment
            ]
            manifests = [*others, self._manifest(content, entries, commit)]
        return manifests

    def _manifest(self, content: int, entries: Sequence[Json], commit: TableCommit) -> Manifest:
        path = self.new_file(f"m{content}.avro")
        notes = {
            "schema": json.dumps(self._now),
            "schema-id": str(self._now["schema-id"]),
            "partition-spec": json.dumps(self.spec),
            "partition-spec-id": "0",
            "format-version": "2",
            "content": ("data", "deletes")[content],
        }
        packed = manifest_bytes(entries, self.spec, self.kinds, notes)
        self._put(path, packed)
        row: Json = {
            "manifest_path": self.where(path),
            "manifest_length": len(packed),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": self.sequence,
            "min_sequence_number": min(entry["sequence_number"] for entry in entries),
            "added_snapshot_id": commit.moment,
            "partitions": [self._told_of(n, entries) for n in range(len(self.spec))],
        }
        for status, what in ((ADDED, "added"), (LIVE, "existing"), (REMOVED, "deleted")):
            counted = [entry for entry in entries if entry["status"] == status]
            row[f"{what}_files_count"] = len(counted)
            row[f"{what}_rows_count"] = sum(each["data_file"]["record_count"] for each in counted)
        return Manifest(row, tuple(entries))

    def _told_of(self, number: int, entries: Sequence[Json]) -> Json:
        """What the list says of the values of a partition field in a manifest."""
        values: list[Plain] = [entry["data_file"]["partition"][number] for entry in entries]
        numbers = [value for value in values if value is not None and value == value]
        has_nan, kind = any(value != value for value in values), self.kinds[number]
        low, high = (min(numbers), max(numbers)) if numbers else (None, None)
        return {
            "contains_null": None in values,
            "contains_nan": has_nan,
            "lower_bound": None if low is None else single_value(low, kind),
            "upper_bound": None if high is None else single_value(high, kind),
        }

    def _put(self, path: str, content: bytes) -> None:
        self.files.write(path, content)
        self.written.append(path)

    # --- making it visible ---------------------------------------------------------------------

    def keep(self, readable: Collection[int]) -> bool:
        """Leaves out snapshots that can't be read any more, all but the newest; whether there were
        some."""
        before = len(self.snapshots)
        self.snapshots = [
            each
            for each in self.snapshots
            if each["snapshot-id"] in readable or each is self.snapshots[-1]
        ]
        if self.snapshots and len(self.snapshots) < before:
            self.snapshots[0] = {
                key: value
                for key, value in self.snapshots[0].items()
                if key != "parent-snapshot-id"
            }
        used = {snapshot["schema-id"] for snapshot in self.snapshots}
        self.schemas = [each for each in self.schemas if each["schema-id"] in used]
        return len(self.snapshots) < before

    def name(self, tags: Mapping[str, int]) -> bool:
        """Gives these names to snapshots, and to no others; whether that changes something. Not to
        one that is not told, and not Iceberg's own name of the newest."""
        told = {snapshot["snapshot-id"] for snapshot in self.snapshots}
        refs = {
            name: {"snapshot-id": moment, "type": "tag"}
            for name, moment in tags.items()
            if moment in told and name != _MAIN
        }
        before = {name: ref for name, ref in self._refs.items() if name != _MAIN}
        self._refs = refs
        return refs != before

    def write(self) -> None:
        """Makes what was told visible."""
        self.version += 1
        newest = self.snapshots[-1]
        document = {
            "format-version": 2,
            "table-uuid": self.uuid,
            "location": self.where(self.path),
            "last-sequence-number": self.sequence,
            "last-updated-ms": newest["timestamp-ms"],
            "last-column-id": self.last_column,
            "current-schema-id": newest["schema-id"],
            "schemas": self.schemas,
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": self.spec}],
            "last-partition-id": 999 + len(self.spec),
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": self.properties,
            "current-snapshot-id": newest["snapshot-id"],
            "refs": self._refs | {_MAIN: {"snapshot-id": newest["snapshot-id"], "type": "branch"}},
            "snapshots": self.snapshots,
            "statistics": [],
            "partition-statistics": [],
            "metadata-log": [],
            "snapshot-log": [
                {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
                for each in self.snapshots
            ],
        }
        sync(self.files, [*self.written, self._directory])
        self._replace(self.newest_file, json.dumps(document).encode())
        self._replace(f"{self._directory}/{_HINT}", str(self.version).encode())
        self.written = []

    def _replace(self, path: str, content: bytes) -> None:
        replace_file(self.files, path, content, f"{path}.{uuid.uuid4()}.draft")

    def remove_old(self, now: int) -> None:
        """Removes files that no snapshot has named for `GRACE`, which a file beside them counts,
        and older versions of that age, which a reader opens only to begin with."""
        named: set[str] = {_HINT, _UNNAMED, f"v{self.version}.metadata.json"}
        for snapshot in self.snapshots:
            named.add(_name(snapshot["manifest-list"]))
            for row in self._listed(snapshot):
                name = _name(row["manifest_path"])
                if name not in named and row["content"] == DELETES:
                    named |= {_name(e["data_file"]["file_path"]) for e in self._entries(row)}
                named.add(name)
        found = [
            info for info in self.files.children(self._directory) if info.base_name not in named
        ]
        known = self._unnamed() if found else {}
        since = {
            info.base_name: (info.mtime_ns or 0) // 1_000_000
            if info.base_name.startswith("v")
            else known.get(info.base_name, now)
            for info in found
        }
        for name in [name for name, at in since.items() if at < now - GRACE]:
            self.files.delete_file(f"{self._directory}/{name}")
            del since[name]
        unnamed = {name: at for name, at in since.items() if not name.startswith("v")}
        if unnamed != known:
            self._replace(f"{self._directory}/{_UNNAMED}", json.dumps(unnamed).encode())

    def _unnamed(self) -> dict[str, int]:
        """Since when no snapshot names these files, in milliseconds; lost, it counts anew."""
        with suppress(FileNotFoundError, ValueError, AttributeError):
            told = json.loads(self.files.read(f"{self._directory}/{_UNNAMED}"))
            return {name: int(since) for name, since in told.items()}
        return {}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _commit_of(snapshot: Json) -> TableCommit:
    told = snapshot["summary"]
    return TableCommit(
        snapshot["snapshot-id"],
        int(told["acid.write-id"]),
        int(told["acid.transaction"]),
        snapshot["timestamp-ms"],
    )
