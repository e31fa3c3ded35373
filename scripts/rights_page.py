"""docs/internal/rights.md: who may do what in the gateway and the metastore."""

from __future__ import annotations

from collections.abc import Iterator

from acid_platform.gateway.gateway import CALLS
from acid_platform.metastore.messages import OPERATIONS
from acid_platform.metastore.operations.tables import GetSettings
from acid_platform.metastore.server.server import HANDLERS

_HEAD = """\
# Who may do what

Printed from the code by `python -m scripts.print_tables`; a test fails when this page is older than
the code, so a new call or operation can't come without its line.

## Calls of the gateway

What a call needs is asked of the [grants](../share.md#grants) or of the function before it is
done; without both, whoever may log in may do everything. A call that uses transactions or locks may
use the caller's own only: those opened or asked for by the same login, and never those that
programs of this platform opened, whatever user their owner has. A lock without a transaction is
known to the gateway that gave it; another gateway, or the same after a restart, asks to lock again.
A commit needs besides, for each table: `insert` or `update` for new rows, `update` or `delete` for
delete events and for directories that replace what was there; and a lock of an operation that
announced them.

`pytest tests/gateway/test_rights.py -k "NAME]"` runs the tests of a call: nobody without the verb
gets in, everybody with it does, and others' transactions and locks are out of reach.
`test_every_pair_of_user_and_call` of that file makes each call for each kind of user through the
whole gateway: whom the grants keep out changes nothing.
"""

_OPERATIONS = """\

## Operations of the metastore

The metastore has no users: whoever knows its key (in a directory: whoever may read its `authkey`)
may do all of these, and nobody else gets an answer. Every argument has to be of its declared type;
else the operation is refused and nothing is changed. A `commit` is compared with the locks of its
transaction: it holds directories of its own write ids, in entities that it locked for writing, and
such that change rows only under a lock for UPDATE, DELETE or an overwrite. A standby answers only
those that say so.

`pytest tests/metastore/test_rights.py -k "NAME]"` runs the tests of an operation.
"""


def _calls() -> Iterator[str]:
    yield "| call | needs | uses only the caller's own | checked again at the commit | test |"
    yield "| --- | --- | --- | --- | --- |"
    for name, row in sorted(CALLS.items()):
        used = [word for word, own in (("transactions", row.txns), ("locks", row.own_lock)) if own]
        words = row.rule.words if row.answer else "refused for everybody: an unknown call"
        own, test = " and ".join(used), f"`test_a_call[{name}]`"
        yield f"| `{name}` | {words} | {own} | {row.rule.at_commit} | {test} |"


def _operations() -> Iterator[str]:
    yield "| operation | what it does to the state | a standby answers | test |"
    yield "| --- | --- | --- | --- |"
    for name, kind in sorted(OPERATIONS.items()):
        own = kind in HANDLERS
        effect = "of the process itself" if own else "reads" if kind.reads else "changes"
        answers = "yes" if own or kind is GetSettings else ""
        yield f"| `{name}` | {effect} | {answers} | `test_an_operation[{name}]` |"


def render() -> str:
    """The page."""
    return "\n".join([_HEAD, *_calls(), _OPERATIONS, *_operations(), ""])
