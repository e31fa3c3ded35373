"""The rules as the model knows them, written a second time without the platform's code."""

from __future__ import annotations

from dataclasses import dataclass, field

WAIT_FOR = {"r": "ep", "w": "xep", "x": "wxep", "e": "rwxep", "p": "rwxep"}
"""For each requested lock the earlier locks that it waits for: the 4.x matrix, and p, which stands
for the publication of a compaction (P46)."""

CHANGES = ("u", "d", "o")
WRITES = ("i", "u", "d", "o")
STRICTEST = {"r": "s", "w": "u", "x": "u", "e": "s"}

DEFAULT, READ_ONLY, COMPACTION = 0, 2, 4

Rows = frozenset[tuple[int, int]]
ROWS_OF_AN_INSERT = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """One component of a lock request: what it locks, and how."""

    db: str
    table: str | None
    partition: str | None
    lock: str
    other_engine: bool = False
    """Another engine asks."""


@dataclass(frozen=True, slots=True)
class Touch:
    table_id: int
    partition: str | None
    operation: str
    dynamic: bool


@dataclass(slots=True)
class Lock:
    """A request in the queue; its place in the list is its place in the queue."""

    txn: int
    request_id: str
    begun: bool
    resources: list[Resource]
    touches: list[Touch]
    tables: dict[str, int]
    wait: int
    deadline: int
    granted: bool = False
    ext: int = 0
    beat: int = 0
    """The last heartbeat of a lock without a transaction."""

    @property
    def publishes(self) -> bool:
        return self.resources[0].lock == "p"


@dataclass(frozen=True, slots=True)
class Write:
    """A committed directory of one entity."""

    write_id: int
    txn: int
    deletes: bool
    overwrite: bool
    committed: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What a commit can conflict with; a drop is an overwrite.

    `rows` are the changed rows, if the commit named them: (write id, rowId).
    """

    txn: int
    write_id: int
    operation: str
    committed: int
    rows: Rows | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A dropped partition: a snapshot of the drop sees nothing up to this write id."""

    txn: int
    committed: int
    up_to: int


@dataclass(slots=True)
class Entity:
    writes: list[Write] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    gone: dict[tuple[int, int], int] = field(default_factory=dict)
    """Each row that a commit changed, with the transaction: an update makes a new row of it."""


@dataclass(slots=True)
class Txn:
    """A transaction. Its moments are numbers that count everything that happens."""

    id: int
    kind: int
    opened: int
    beat: int
    read: int
    told: int
    """The timeout that its client learnt last."""
    all_tables: bool
    state: str = "o"
    committed: int = 0
    snapshot: int = 0
    """When its snapshot was taken; 0 while it has none."""
    unseen: frozenset[int] = frozenset()
    """The writers that were open when the snapshot was taken."""
    write_ids: dict[int, int] = field(default_factory=dict)
    touches: list[Touch] = field(default_factory=list)
    needs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a table from a moment on."""

    since: int
    name: str
    columns: tuple[tuple[str, str], ...]
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class PartitionLife:
    """A partition from its registration to its drop (0: it exists)."""

    name: str
    added: int
    dropped: int = 0


@dataclass(slots=True)
class Table:
    id: int
    location: str
    partitioned: bool
    floor: int
    next_write_id: int
    declared: list[Declared]
    """All declarations, the newest last."""
    version: int = 0
    """The metastore's version of the newest declaration."""
    outdated: set[int] = field(default_factory=set)
    """The metastore's versions of the earlier declarations."""
    owners: dict[int, int] = field(default_factory=dict)
    """Write id to transaction."""
    cleaned_up_to: int = 0
    dropped: int = 0
    away: list[tuple[int, int]] = field(default_factory=list)
    """When it was dropped, and when it came back (P83)."""
    lives: list[PartitionLife] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.declared[-1].name

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.declared[-1].columns

    @property
    def partitions(self) -> set[str]:
        return {life.name for life in self.lives if not life.dropped}

    def at(self, moment: int) -> Declared | None:
        """The declaration that a snapshot of this moment sees, if the table existed (P28)."""
        if self.dropped and self.dropped < moment:
            return None
        if any(dropped < moment <= back for dropped, back in self.away):
            return None
        return next(
            (declaration for declaration in reversed(self.declared) if declaration.since < moment),
            None,
        )

    def partitions_at(self, moment: int) -> set[str]:
        return {
            life.name
            for life in self.lives
            if life.added < moment and not 0 < life.dropped < moment
        }


def meet(one: Resource, other: Resource) -> bool:
    """Whether both lock the same resource (L4), and neither only guards the database (L6)."""
    if one.db != other.db:
        return False
    if (one.table is None) != (other.table is None):
        return (one if one.table is None else other).lock != "r"
    if one.table != other.table:
        return False
    return one.partition is None or other.partition is None or one.partition == other.partition


def waits(asked: Resource, earlier: Resource) -> bool:
    publishes = "p" in (asked.lock, earlier.lock) and asked.lock != earlier.lock
    if publishes and not (asked.other_engine or earlier.other_engine):
        return False  # our own locks have nothing to do with a publication
    return earlier.lock in WAIT_FOR[asked.lock] and meet(asked, earlier)
