"""The primary's side of replication: what its standby gets, and what has to wait for it.

The standby's requests are answered when there is something new. Each of them says what is durable
there. With a synchronous standby the server sends no answer before the standby has every event that
the answer may show, and it answers nothing while the standby may have been promoted: the standby
promises for a lease after each request not to do so.
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from acid_platform.base.clock import elapsed_seconds
from acid_platform.base.config import Settings
from acid_platform.errors import (
    AcidError,
    MetastoreDamaged,
    MetastoreInUse,
    MetastoreUnavailable,
    StandbyRefused,
)
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.operations import write_answer
from acid_platform.metastore.operations.replication import Batch, Follow, Followed
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.journal import Record
from acid_platform.metastore.server.membership import Membership

_LOG = logging.getLogger("acid_platform.metastore")

KEPT_BYTES = 64 << 20
"""Batches that are kept for a standby; one that lacks older ones is made anew."""

_MOST_BYTES = 4 << 20
"""The text of batches in one answer."""

_SOON_BYTES = 256 << 10
"""The text of batches that a standby may still lack when it becomes synchronous. If it had to have
all of them, it might never become so while commits go on. They wait until it has these."""


@dataclass(slots=True)
class _Follower:
    """The connected standby."""

    id: str
    address: str
    after: int
    request_id: str = ""
    """Its request that is not answered yet."""
    asked: float = 0.0
    number: int = 0
    """The number of the last answer, and when it was sent."""
    answered: float = 0.0
    synchronous: bool = False


class Replication:
    """One primary's knowledge of its standby."""

    def __init__(
        self,
        home: Home,
        membership: Membership,
        settings: Callable[[], Settings],
        records: Sequence[Record],
    ) -> None:
        """`settings` returns those in force; `records`: the journal's, which a standby may lack."""
        self._home, self.membership, self._settings = home, membership, settings
        # Different after each start: an answer of an earlier process grants no lease.
        self._numbers = itertools.count(secrets.randbits(40) + 1)
        self._kept: deque[Record] = deque()
        self._kept_bytes = 0
        self._follower: _Follower | None = None
        self._until = float("-inf")
        """The end of the lease by which the standby lets this primary answer."""
        for record in records:
            self.written(record)

    # --- what the server asks -----------------------------------------------------------------

    @property
    def requires_standby(self) -> bool:
        """Whether nothing is answered without the standby."""
        return self.membership.synchronous

    def written(self, record: Record) -> None:
        """Keeps a batch that is durable here."""
        self._kept.append(record)
        self._kept_bytes += len(record.text)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popleft().text)

    def has(self, last: int) -> bool:
        """Whether the events up to this number are durable wherever they have to be."""
        if not self.requires_standby:
            return True
        return self._follower is not None and self._follower.after >= last

    def leads(self) -> bool:
        """Whether this primary may answer: the standby can't have been promoted."""
        return not self.requires_standby or elapsed_seconds() < self._until

    @property
    def patience(self) -> float:
        """Seconds for which requests wait for an absent standby before they are refused."""
        return 2 * self._lease / 1000

    def absent(self) -> MetastoreUnavailable:
        """Why nothing is answered."""
        member = self.membership
        where = f" at {self._follower.address}" if self._follower else ""
        return MetastoreUnavailable(
            f"the synchronous standby {member.standby}{where} does not answer, and may have been"
            " promoted: nothing is done without it. Start it again; or if it was promoted, use its"
            " address, and make this metastore its standby (`acid metastore standby --of ADDRESS"
            " --replace`); or if it is gone for good, `acid metastore forget-standby`"
        )

    def status(self, last: int) -> dict[str, object]:
        follower = self._follower
        return {
            "role": self.membership.role,
            "term": self.membership.term,
            "standby": follower.id if follower else self.membership.standby,
            "standby_address": follower.address if follower else "",
            "standby_lacks": last - follower.after if follower else None,
            "synchronous": self.membership.synchronous,
        }

    # --- the standby's requests ---------------------------------------------------------------

    def follow(self, request_id: str, asked: Follow, last: int) -> Reply | None:
        """Takes a standby's request; it is answered by `answers`, unless it is refused."""
        try:
            self._require(asked, last)
        except AcidError as error:
            return Reply(request_id, error_reply(error))
        now = elapsed_seconds()
        follower = self._follower
        if follower is None or follower.id != asked.standby:
            follower = self._follower = _Follower(asked.standby, asked.address, asked.after)
        elif asked.number and asked.number == follower.number:
            # It was sent after that answer arrived, and so after we sent the answer. A request on a
            # new connection may be older than it arrives, so the moment of its arrival proves
            # nothing.
            self._until = follower.answered + self._lease / 1000
        follower.after, follower.address = asked.after, asked.address
        follower.request_id, follower.asked = request_id, now
        follower.synchronous = asked.synchronous
        self._change_mode(follower)
        return None

    def _require(self, asked: Follow, last: int) -> None:
        """Raises StandbyRefused if the standby has to be made anew, else MetastoreInUse or
        MetastoreDamaged."""
        member = self.membership
        if asked.after > last and asked.term == member.term:
            raise MetastoreDamaged(
                f"the standby {asked.standby} has event {asked.after}, but this primary ends with"
                f" event {last}: its files are older than what it acknowledged; promote the standby"
            )
        known = self._follower.id if self._follower else member.standby
        if known and known != asked.standby and (member.synchronous or self._is_connected):
            raise MetastoreInUse(
                f"this primary has the standby {known}; `acid metastore forget-standby` lets"
                f" {asked.standby} take its place"
            )
        if asked.term != member.term or asked.after < self._oldest(last):
            raise StandbyRefused(
                f"the standby {asked.standby} has term {asked.term} and event {asked.after}; this"
                f" primary has term {member.term} and keeps the events after {self._oldest(last)}:"
                " the standby has to be made anew"
            )

    @property
    def _is_connected(self) -> bool:
        follower = self._follower
        return follower is not None and elapsed_seconds() - follower.asked < self._lease / 1000

    def _oldest(self, last: int) -> int:
        """The number of the event after which all are kept."""
        return self._kept[0].first - 1 if self._kept else last

    def _change_mode(self, follower: _Follower) -> None:
        """Makes a standby that lacks little synchronous, or ends that, as the setting says."""
        wanted = self._settings().flag("acid.metastore.standby.synchronous")
        member = self.membership
        if wanted and not member.synchronous and self._lacks_little(follower):
            self._record(replace(member, standby=follower.id, synchronous=True))
            _LOG.info("%s at %s is synchronous", follower.id, follower.address)
        elif not wanted and member.synchronous and not follower.synchronous:
            # It has recorded that it may not promote itself, so commits need not wait for it.
            self._record(replace(member, standby="", synchronous=False))
            _LOG.info("%s at %s is asynchronous", follower.id, follower.address)

    def _record(self, membership: Membership) -> None:
        membership.write(self._home)
        self.membership = membership

    def answers(self, last: int) -> list[Reply]:
        """The answer to the standby's request, if it is due. To be called after each batch."""
        follower = self._follower
        if follower is None or not follower.request_id:
            return []
        now = elapsed_seconds()
        # A change of the mode is told at once: nothing may be acknowledged before it is known.
        batches = self._batches(follower.after)
        told = self._told(follower, batches[-1].last if batches else follower.after, last)
        waits = follower.after == last and told == follower.synchronous and self.leads()
        if waits and now - follower.asked < self._lease / 4000:
            return []
        number = next(self._numbers)
        answer = Followed(batches, last, self._lease, told, number)
        reply = Reply(follower.request_id, {"value": write_answer(Follow, answer)})
        follower.request_id, follower.number, follower.answered = "", number, now
        return [reply]

    def _told(self, follower: _Follower, reached: int, last: int) -> bool:
        """Whether the answer that brings the standby to event `reached` says it is synchronous.

        It then may promote itself, so it needs every commit that was acknowledged without it.
        """
        wanted = self._settings().flag("acid.metastore.standby.synchronous")
        member = self.membership
        counts = member.synchronous and wanted and member.standby == follower.id
        return counts and (follower.synchronous or reached >= last)

    def _lacking(self, after: int) -> list[Record]:
        """The batches after this event. The standby lacks few of those that are kept."""
        lacking = list(
            itertools.takewhile(lambda record: record.last > after, reversed(self._kept))
        )
        lacking.reverse()
        return lacking

    def _lacks_little(self, follower: _Follower) -> bool:
        return sum(len(record.text) for record in self._lacking(follower.after)) <= _SOON_BYTES

    def _batches(self, after: int) -> list[Batch]:
        taken, size = list[Batch](), 0
        for record in self._lacking(after):
            if taken and size + len(record.text) > _MOST_BYTES:
                break
            taken.append(Batch(record.first, record.last, record.text))
            size += len(record.text)
        return taken

    @property
    def _lease(self) -> int:
        """In milliseconds."""
        return self._settings().integer("acid.metastore.standby.lease")

    def forget(self) -> str:
        """Goes on without the standby, which must have ended for good. Raises StandbyRefused."""
        known = self._follower.id if self._follower else self.membership.standby
        if not known:
            raise StandbyRefused("this metastore has no standby")
        if self._is_connected:
            raise StandbyRefused(
                f"the standby {known} is connected; stop it first (`acid metastore stop` there) and"
                " remove its directory, so that nobody starts it again"
            )
        self._record(replace(self.membership, standby="", synchronous=False))
        self._follower = None
        return known
