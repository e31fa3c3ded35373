"""The standby's side of replication: a thread follows the primary, the server's thread applies.

The standby's files are like the primary's: the same events under the same numbers, in a journal
that is folded into tables. So promoting it means to load them, as any start does.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from acid_platform.errors import (
    MetastoreUnavailable,
    StandbyRefused,
    error_class,
)
from acid_platform.metastore.client.target import remote
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.operations import Answer, arguments, read_answer
from acid_platform.metastore.operations.replication import Follow, Followed
from acid_platform.metastore.server.group_commit import GroupCommit
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.wire import PRIMARY, WAITING

_LOG = logging.getLogger("acid_platform.metastore")
_AGAIN_SECONDS = 0.1
_LONGEST_LOOK_AWAY = 0.3
"""The most seconds that count as silence between two looks: a suspended process hears nothing."""
_FIRST_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Progress:
    """What the thread tells the primary."""

    after: int
    synchronous: bool


class Standby:
    """Follows `membership.primary` until `stop`.

    The thread waits for the primary; the server's thread calls `apply` and `may_promote`.
    """

    def __init__(
        self,
        home: Home,
        membership: Membership,
        group: GroupCommit,
        address: str,
        ring: Callable[[], None],
    ) -> None:
        """`address`: where this standby listens. `ring` wakes the server's thread."""
        self._home, self._group, self._address = home, group, address
        self.membership, self._ring = membership, ring
        self.outdated = ""
        """Why it has to be made anew; empty if it need not be."""
        self._target = remote(self.membership.primary)
        self._changed = threading.Condition()
        self._arrived: Followed | None = None
        self._applied = True
        self._progress = _Progress(group.last, self.membership.synchronous)
        self._looked = time.monotonic()
        # An earlier process of this standby may have promised that much just before it ended.
        lease = group.state.settings.integer("acid.metastore.standby.lease")
        self._promised = self._looked + lease / 1000
        """The moment up to which the primary relies on this standby not being promoted."""
        self._silence = 0.0
        """Seconds without an answer, as far as this process was awake."""
        self._last = group.last
        self._stopped = False
        self._thread = threading.Thread(target=self._follow, name="standby", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # --- the server's thread ------------------------------------------------------------------

    def apply(self) -> None:
        """Makes durable what has arrived. Raises OSError, MetastoreDamaged."""
        with self._changed:
            answer, self._arrived = self._arrived, None
        if answer is None:
            return
        self._silence = 0.0
        for batch in answer.batches:
            self._group.follow(batch)
        if answer.synchronous != self.membership.synchronous:
            self.membership = replace(self.membership, synchronous=answer.synchronous)
            self.membership.write(self._home)
        with self._changed:
            self._last = answer.last
            self._progress = _Progress(self._group.last, self.membership.synchronous)
            self._applied = True
            self._changed.notify_all()

    def may_promote(self) -> bool:
        """Whether the primary can't have acknowledged a commit that is not here, nor can it now.

        A standby that was suspended first hears whether its primary still answers.
        """
        now = time.monotonic()
        self._silence += min(now - self._looked, _LONGEST_LOOK_AWAY)
        self._looked = now
        return (
            self.membership.automatic
            and self._silence > 2 * _LONGEST_LOOK_AWAY
            and self.membership.synchronous
            and not self.outdated
            and now > self._promised
        )

    def promote(self, incomplete: bool) -> Membership:
        """Stops following and records that this is the primary. Raises StandbyRefused.

        `incomplete`: also if the primary may have acknowledged commits that are not here.
        """
        if not self.membership.synchronous and not incomplete:
            raise StandbyRefused(
                f"this standby of {self.membership.primary} is asynchronous: it ends with event"
                f" {self._group.last}, the primary had event {self._last} when it last answered and"
                " may have acknowledged more; promote it nevertheless with --incomplete"
            )
        with self._changed:
            if time.monotonic() <= self._promised:
                raise StandbyRefused(
                    f"the primary {self.membership.primary} has answered just now; stop it first"
                )
            self._stopped = True
            self._changed.notify_all()
        self.membership = Membership(PRIMARY, self.membership.term + 1)
        self.membership.write(self._home)
        return self.membership

    def status(self) -> dict[str, object]:
        member = self.membership
        return {
            "role": member.role,
            "term": member.term,
            "primary": member.primary,
            "standby": member.standby,
            "standby_lacks": max(self._last - self._group.last, 0),
            "synchronous": member.synchronous,
        }

    def refusal(self) -> MetastoreUnavailable:
        """The answer to whoever takes it for the primary."""
        return MetastoreUnavailable(
            f"this is the standby of {self.membership.primary}; ask that, or name both addresses:"
            " tcp://HOST:PORT,HOST:PORT"
        )

    # --- the thread that follows --------------------------------------------------------------

    def _follow(self) -> None:
        said = ""
        while not self._stopped:
            try:
                self._follow_connected()
            except StandbyRefused as error:
                self.outdated = str(error)
                _LOG.warning("%s", error)
                self._ring()
                return
            except Exception as error:  # whatever the primary sent: ask again
                if str(error) != said:
                    said = str(error)
                    _LOG.info("the primary %s does not answer: %s", self.membership.primary, said)
            with self._changed:
                if not self._stopped:
                    self._changed.wait(_AGAIN_SECONDS)

    def _follow_connected(self) -> None:
        """Raises StandbyRefused, and whatever a broken connection raises."""
        channel = self._target.dial_one_of({PRIMARY, WAITING})
        try:
            if channel.term < self.membership.term:
                raise MetastoreUnavailable(f"{self.membership.primary} was replaced by a standby")
            if channel.term > self.membership.term:
                raise StandbyRefused(
                    f"{self.membership.primary} has term {channel.term}, this standby has"
                    f" {self.membership.term}: the standby has to be made anew"
                )
            number, lease = 0, 0
            while True:
                with self._changed:
                    if self._stopped:
                        return
                    asked = self._request(number)
                    # From the moment before it is sent, which the primary can't overestimate.
                    self._promised = max(self._promised, time.monotonic() + lease / 1000)
                patience = 2 * lease / 1000 if lease else _FIRST_ANSWER_SECONDS
                answer = _value(json.loads(channel.exchange(_message(asked), patience)))
                number, lease = answer.number, answer.lease
                with self._changed:
                    self._promised = max(self._promised, time.monotonic() + lease / 1000)
                    self._arrived, self._applied = answer, False
                    self._ring()
                    while not self._applied:
                        if self._stopped:
                            return
                        self._changed.wait()
        finally:
            channel.close()

    def _request(self, number: int) -> Follow:
        member, progress = self.membership, self._progress
        return Follow(
            member.standby, self._address, member.term, progress.after, progress.synchronous, number
        )


def _value(answer: Answer) -> Followed:
    if "error" in answer:
        name, text = answer["error"]
        raise error_class(name)(text)
    return read_answer(Follow, answer["value"])


def _message(asked: Follow) -> bytes:
    fields = {"id": secrets.token_hex(8), "op": asked.op, "args": arguments(asked)}
    return json.dumps(fields).encode()
