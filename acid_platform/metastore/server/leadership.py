"""What a metastore does as the primary or as a standby: which requests it answers, which it keeps
until its standby is back, and which it refuses."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress

from acid_platform.errors import MetastoreIncompatible, StandbyRefused
from acid_platform.metastore import wire
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.operations import MetastoreOperation
from acid_platform.metastore.operations.replication import Follow, Followed
from acid_platform.metastore.operations.tables import GetSettings
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.journal_shipping import Replication
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.server.reception import Reception
from acid_platform.metastore.server.standby import Standby
from acid_platform.metastore.wire import STANDBY

_LOG = logging.getLogger("acid_platform.metastore")


class Leadership:
    """One metastore's part in replication. The server's thread calls it."""

    def __init__(
        self,
        home: Home,
        membership: Membership,
        commits: GroupCommit,
        reception: Reception,
        own: Container[type[MetastoreOperation[object]]],
    ) -> None:
        """`own`: the operations on the process, which the server answers whatever its part."""
        self._home, self._commits, self._reception = home, commits, reception
        self._own = own
        self._held: list[Request] = []
        """Requests that came while the synchronous standby was missing."""
        self._held_since: float | None = None
        self._unsent: list[Reply] = []
        """Answers that wait until the standby has what they show."""
        self.standby: Standby | None = None
        self.before_promotion: Callable[[], None] = lambda: None
        """Called while the events here still belong to the term of the old primary."""
        if membership.role == STANDBY:
            self.standby = Standby(
                home, membership, commits, reception.service, reception.connections.ring
            )
        self._lead(membership)

    @property
    def membership(self) -> Membership:
        return self.standby.membership if self.standby else self._replication.membership

    @property
    def leads(self) -> bool:
        """Whether nobody else can be the primary now."""
        return self.standby is None and self._replication.leads()

    @property
    def outdated(self) -> str:
        """Why this has to be made anew, if it is a standby."""
        return self.standby.outdated if self.standby else ""

    def status(self) -> dict[str, object]:
        if self.standby is not None:
            return self.standby.status()
        return self._replication.status(self._commits.last)

    def round(self, requests: list[Request], due: bool) -> list[Request]:
        """Handles what has arrived, and returns the requests on the process itself; `due`: also
        what is due by itself."""
        if self.standby is not None:
            return self._stand_by(self.standby, requests)
        return self._serve(requests, due)

    def stop(self) -> None:
        if self.standby is not None:
            self.standby.stop()

    # --- a primary ----------------------------------------------------------------------------

    def _lead(self, membership: Membership) -> None:
        self._replication = Replication(
            self._home,
            membership,
            lambda: self._commits.state.settings,
            self._commits.store.records(),
        )
        self._commits.on_written = self._replication.written
        waits = self._replication.requires_standby
        self._tell_role(STANDBY if self.standby else wire.WAITING if waits else wire.PRIMARY)

    def _tell_role(self, role: str) -> None:
        self._reception.connections.role = role
        self._reception.connections.term = self._replication.membership.term

    def _serve(self, requests: list[Request], due: bool) -> list[Request]:
        commits, reception = self._commits, self._reception
        requests = self._take_follows(requests)
        self._acknowledge()
        if self._unsent or not self._replication.leads():
            requests = self._hold(requests)
        else:
            requests, self._held, self._held_since = [*self._held, *requests], [], None
            self._tell_role(wire.PRIMARY)
            self._unsent, requests = commits.answer_reads(requests)
            self._acknowledge()
            requests += self._take_follows(reception.receive(0))
            if requests or due:
                others = [each for each in requests if type(each.operation) not in self._own]
                self._unsent += commits.round(others, reception.waiting if due else None)
                self._acknowledge()
        reception.send(self._replication.answers(commits.last))
        return [request for request in requests if type(request.operation) in self._own]

    def _acknowledge(self) -> None:
        """Sends the answers once the standby has what they show, and can't have been promoted.

        This process may have been suspended at any moment before, also after it took the requests.
        """
        replication = self._replication
        if self._unsent and replication.has(self._commits.last) and replication.leads():
            replies, self._unsent = self._unsent, []
            self._reception.send(replies)

    def _take_follows(self, requests: list[Request]) -> list[Request]:
        """Hands the standby's requests to replication, and returns the others."""
        others = []
        for request in requests:
            if not isinstance(request.operation, Follow):
                others.append(request)
                continue
            last = self._commits.last
            refused = self._replication.follow(request.id, request.operation, last)
            if refused:
                self._reception.send([refused])
        return others

    def _hold(self, requests: list[Request]) -> list[Request]:
        """Keeps requests until the standby is back, and returns those on the process itself.

        After a while clients are told: over TCP by the end of the connection, since they may find
        the standby that was promoted.
        """
        own, others = self._split(requests)
        self._held += others
        self._held = [request for request in self._held if request.id in self._reception.waiting]
        if self._replication.leads():
            self._held_since = None
            return own
        now = time.monotonic()
        self._held_since = self._held_since or now
        if now - self._held_since > self._replication.patience:
            self._tell_role(wire.WAITING)
            late, self._held = self._held, []
            self._reception.drop_remote(
                [*(reply.request_id for reply in self._unsent), *_ids(late)]
            )
            absent = error_reply(self._replication.absent())
            self._reception.send(Reply(request.id, absent) for request in late)
        return own

    def _split(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """The requests on the process itself, and the others, except for the settings: every client
        asks for them first, and they are answered here."""
        asked = [request for request in requests if isinstance(request.operation, GetSettings)]
        replies, _ = self._commits.answer_reads(asked)
        self._reception.send(replies)
        own = [request for request in requests if type(request.operation) in self._own]
        return own, [each for each in requests if each not in own and each not in asked]

    def forget_standby(self) -> str:
        """Raises StandbyRefused."""
        if self.standby is not None:
            raise StandbyRefused("this metastore is a standby itself")
        return self._replication.forget()

    # --- a standby ----------------------------------------------------------------------------

    def _stand_by(self, standby: Standby, requests: list[Request]) -> list[Request]:
        standby.apply()
        own, others = self._split(requests)
        refusal = error_reply(standby.refusal())
        self._reception.send(Reply(request.id, refusal) for request in others)
        if standby.may_promote():
            with suppress(StandbyRefused):  # the primary has answered after all
                self._promote(standby, incomplete=False)
        return own

    def _promote(self, standby: Standby, incomplete: bool) -> int:
        """Raises StandbyRefused, OSError, and what loading raises."""
        self.before_promotion()
        membership = standby.promote(incomplete)
        self.standby = None
        self._commits.take_over()
        self._lead(membership)
        _LOG.warning("promoted: the primary of term %d", membership.term)
        return membership.term

    def refuse_follow(self) -> Followed:
        """Refuses; a primary answers it later, see `_take_follows`. Raises MetastoreUnavailable."""
        raise self.standby.refusal() if self.standby else self._replication.absent()

    def promote(self, incomplete: bool) -> int:
        """Raises StandbyRefused."""
        if self.standby is None:
            raise StandbyRefused("this metastore is the primary already")
        return self._promote(self.standby, incomplete)


def require_service(membership: Membership, service: object) -> None:
    """Raises MetastoreIncompatible: the other one must be able to connect."""
    if not service and (membership.role == STANDBY or membership.synchronous):
        raise MetastoreIncompatible(
            f"this metastore is a {membership.role} in replication, so it must listen: start it"
            " with `acid metastore start --listen HOST:PORT`"
        )


def _ids(requests: Iterable[Request]) -> list[str]:
    return [request.id for request in requests]
