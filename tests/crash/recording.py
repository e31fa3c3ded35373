"""The recorder's records, and what a power cut leaves of them on the disk.

The model is that of a strict ext4-like file system:
- Written bytes and a changed length are on the disk once the file was synced afterwards. Until then
  each write is there, or not, or its first sectors of 512 bytes are, whatever became of the others.
- A name that was made, changed or removed is so on the disk once its directory was synced
  afterwards; until then each is, or is not. A rename is one step, whole or not at all, and the sync
  of either of its directories makes it durable.
- To sync a file makes no name durable, to sync a directory no content: so a file may be found
  empty, or not at all, although its content was synced. (ext4 is kinder in most cases.)
- Nothing else is lost: no synced block goes bad.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

NEVER = 1 << 62
SECTOR = 512


@dataclass(eq=False)
class Node:
    """A file or directory under any name; `pending` are the changes that no sync covers."""

    directory: bool
    entries: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)


@dataclass(eq=False)
class Change:
    """One step that a power cut keeps or drops; `synced` is the record that made it durable."""

    at: int
    synced: int = NEVER


@dataclass(eq=False)
class Naming(Change):
    """Names in directories, each with the node that it refers to from now on."""

    names: tuple[tuple[Node, str, Node | None], ...] = ()


@dataclass(eq=False)
class Content(Change):
    """Bytes that were written to a file; if `data` is None, its new length `offset`."""

    file: Node | None = None
    offset: int = 0
    data: bytes | None = None

    def apply(self, content: bytearray, part: float = 1) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        whole = part == 1 or len(self.data) <= SECTOR
        data = self.data if whole else self.data[: int(len(self.data) * part / SECTOR) * SECTOR]
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(data)] = data


Tree = dict[str, "bytes | Tree"]
"""A directory: its content by name."""
Keep = Callable[[Change], float]
"""Decides how much of a change that is not durable survives, 0 to 1."""


def nothing(change: Change) -> float:
    """Keeps nothing: the worst case of a power cut."""
    return 0


def everything(change: Change) -> float:
    """Keeps everything, as when processes are killed but the machine goes on."""
    return 1


def some(seed: int) -> Keep:
    """Keeps random parts."""
    chance = random.Random(seed)
    share = chance.random()

    def keep(change: Change) -> float:
        if chance.random() >= share:
            return 0
        return chance.random() if isinstance(change, Content) and chance.random() < 0.2 else 1

    return keep


class Recording:
    """The records of one workload below `root`; `marks` are the workload's own marks."""

    def __init__(self, log: Path, root: str) -> None:
        self._root_path = root.rstrip("/")
        self.root = Node(True)
        self.changes: list[Change] = []
        self.marks: list[tuple[int, str]] = []
        self.syncs: list[int] = []
        self.length = 0
        opened: dict[int, Node] = {}
        for at, (kind, number, a, b, first, second, data) in enumerate(_records(log.read_bytes())):
            self.length = at + 1
            match kind:
                case "open":
                    opened[number] = self._open(at, first, created=bool(a), cut=bool(b))
                case "write":
                    self._content(Content(at, NEVER, opened[number], a, data))
                case "truncate":
                    self._content(Content(at, NEVER, opened[number], a))
                case "sync":
                    for change in opened[number].pending:
                        change.synced = min(change.synced, at)
                    opened[number].pending.clear()
                    self.syncs.append(at)
                case "mark":
                    self.marks.append((at, first))
                case "mkdir":
                    if first.rstrip("/") != self._root_path:
                        self._name(at, (*self._place(first), Node(True)))
                case "link":
                    self._name(at, (*self._place(second), self._find(first)))
                case "rename":
                    self._name(
                        at, (*self._place(second), self._find(first)), (*self._place(first), None)
                    )
                case "unlink":
                    self._name(at, (*self._place(first), None))
                case _:
                    raise AssertionError(kind)

    def after(self, count: int, keep: Keep = nothing) -> Tree:
        """The content of the disk after so many records and a power cut."""
        names: dict[Node, dict[str, Node]] = {}
        contents: dict[Node, bytearray] = {}
        for change in self.changes:
            if change.at >= count:
                break
            part = 1.0 if change.synced < count else keep(change)
            if isinstance(change, Content) and part:
                assert change.file is not None
                change.apply(contents.setdefault(change.file, bytearray()), part)
            elif isinstance(change, Naming) and part:
                for directory, name, node in change.names:
                    if node is None:
                        names.setdefault(directory, {}).pop(name, None)
                    else:
                        names.setdefault(directory, {})[name] = node
        return self._tree(self.root, names, contents)

    def _tree(
        self, directory: Node, names: dict[Node, dict[str, Node]], contents: dict[Node, bytearray]
    ) -> Tree:
        return {
            name: self._tree(node, names, contents)
            if node.directory
            else bytes(contents.get(node, b""))
            for name, node in names.get(directory, {}).items()
        }

    # --- reading the records --------------------------------------------------------------------

    def _open(self, at: int, path: str, created: bool, cut: bool) -> Node:
        if created:
            node = Node(False)
            self._name(at, (*self._place(path), node))
            return node
        node = self._find(path)
        if cut:
            self._content(Content(at, NEVER, node, 0))
        return node

    def _content(self, change: Content) -> None:
        assert change.file is not None
        self.changes.append(change)
        change.file.pending.append(change)

    def _name(self, at: int, *names: tuple[Node, str, Node | None]) -> None:
        change = Naming(at, NEVER, names)
        self.changes.append(change)
        for directory, name, node in names:
            if node is None:
                directory.entries.pop(name)
            else:
                directory.entries[name] = node
            directory.pending.append(change)

    def _place(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._find(above), name

    def _find(self, path: str) -> Node:
        node = self.root
        for name in path.removeprefix(self._root_path).split("/"):
            if name not in ("", "."):
                node = node.entries[name]
        return node


def _records(log: bytes) -> Iterator[tuple[str, int, int, int, str, str, bytes]]:
    at = 0
    while at < len(log):
        end = log.index(b"\n", at)
        kind, number, a, b, size, first, second = log[at:end].decode().split(" ")
        data = log[end + 1 : end + 1 + int(size)]
        yield kind, int(number), int(a), int(b), unquote(first), unquote(second), data
        at = end + 2 + int(size)


def make(tree: Tree, path: Path) -> None:
    """Replaces whatever is at the path by the tree."""
    shutil.rmtree(path, ignore_errors=True)
    _write(tree, path)


def _write(tree: Tree, path: Path) -> None:
    path.mkdir(parents=True)
    for name, entry in tree.items():
        if isinstance(entry, bytes):
            (path / name).write_bytes(entry)
        else:
            _write(entry, path / name)


def found(path: Path) -> Tree:
    """The tree that is at the path."""
    return {
        entry.name: found(entry) if entry.is_dir() else entry.read_bytes()
        for entry in path.iterdir()
    }
