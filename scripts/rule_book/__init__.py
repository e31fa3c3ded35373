"""The rules that code, errors, documents and tests name by an id, each in one sentence.

`python -m scripts.print_tables` prints them into docs/rules.md. tests/docs/test_rules.py holds the
table, the code and the tests to each other. The platform never imports it.
"""

from __future__ import annotations

from scripts.rule_book import compaction, locks, platform, snapshots, storage, transactions
from scripts.rule_book.rule import Group, NotBuilt, Rule

GROUPS: tuple[Group, ...] = (
    transactions.GROUP,
    snapshots.GROUP,
    locks.GROUP,
    storage.GROUP,
    compaction.GROUP,
    platform.GROUP,
)

__all__ = ["GROUPS", "Group", "NotBuilt", "Rule"]
