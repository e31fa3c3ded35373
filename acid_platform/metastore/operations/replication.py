"""A standby follows the primary's journal, and takes its place (P10)."""

from __future__ import annotations

from dataclasses import dataclass

from acid_platform.metastore.operations.base import MetastoreOperation


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that became durable together."""

    first: int
    """The number of the first event."""
    last: int
    text: str
    """The events as JSON."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The batches after the last that the standby has, and what it may promise from now on."""

    batches: list[Batch]
    last: int
    """The number of the primary's last event."""
    lease: int
    """Milliseconds after its next request for which the standby does not promote itself."""
    synchronous: bool
    """Whether the primary acknowledges no commit that this standby lacks."""
    number: int
    """The answer's own number, by which the next request proves that it arrived."""


@dataclass(frozen=True, slots=True)
class Follow(MetastoreOperation[Followed]):
    """Asks for the batches after `after`, and says that all up to it are durable here.

    The answer comes as soon as there is a batch, or after a quarter of the lease.
    """

    op = "follow"
    repeatable = True

    standby: str
    """The standby's id."""
    address: str
    """Where it listens, for people."""
    term: int
    after: int
    synchronous: bool
    """Whether the standby has recorded that it is synchronous, and so may promote itself."""
    number: int
    """The number of the last answer that arrived; 0 if none did."""


@dataclass(frozen=True, slots=True)
class Promote(MetastoreOperation[int]):
    """Makes a standby the primary and returns its term."""

    op = "promote"
    answers = "term"
    repeatable = True

    incomplete: bool
    """Whether it may be promoted although it may lack commits that were acknowledged."""


@dataclass(frozen=True, slots=True)
class ForgetStandby(MetastoreOperation[str]):
    """Lets the primary go on without its standby, and returns the standby's id."""

    op = "forget_standby"
    answers = "standby"
    repeatable = True
