"""L: the lock manager."""

from __future__ import annotations

from scripts.rule_book.rule import Group, NotBuilt, Rule

_QUEUE = ("metastore.rules.locking",)
_MATRIX = ("transactions.locks",)

GROUP = Group(
    "L",
    "Locks",
    "A lock request names databases, tables or partitions, each with SHARED_READ, SHARED_WRITE,"
    " EXCL_WRITE or EXCLUSIVE. [Which waits for which](tables.md) is printed from the code.",
    (
        Rule(
            "L1",
            "A request is only compared with requests that came before it.",
            _QUEUE,
            ("test_case_34_L1_a_request_is_only_compared_with_those_before_it",),
        ),
        Rule(
            "L2",
            "Requests for one resource are granted in the order in which they came: a waiting"
            " request blocks later ones as a granted one does, by Hive 4's matrix.",
            ("metastore.rules.locking", "transactions.locks"),
            ("test_L2_first_come_first_served", "test_L2_matrix_is_complete"),
        ),
        Rule(
            "L3",
            "A request gets all its locks or none.",
            _QUEUE,
            ("test_L3_all_or_nothing",),
        ),
        Rule(
            "L4",
            "Two locks meet if they name the same database, and there the same table and"
            " partition; a lock that names no table or partition meets all below it.",
            _MATRIX,
            ("test_L4_levels", "test_L4_another_database_never_blocks"),
        ),
        Rule(
            "L5",
            "Locks of one transaction never block each other; a lock without a transaction"
            " competes with everyone.",
            _QUEUE,
            (
                "test_L5_own_locks_do_not_block",
                "test_L5_L16_locks_without_a_transaction_compete_with_all",
            ),
        ),
        Rule(
            "L6",
            "A SHARED_READ of a database guards only against dropping the database: it does not"
            " conflict with EXCLUSIVE locks of its tables.",
            _MATRIX,
            ("test_L6_database_read_does_not_meet_table_exclusive",),
        ),
        Rule(
            "L7",
            "A write to a named partition locks the partition; a write whose partitions only its"
            " rows tell locks the table.",
            _QUEUE,
            ("test_L7_partitions_lock_apart",),
        ),
        Rule(
            "L10",
            "A read that is blocked is refused at once with LockNotAcquired and leaves no lock"
            " behind, unless writes are exclusive by settings; then it waits.",
            ("metastore.rules.locking", "transactions.locks:zero_wait_reads"),
            (
                "test_L10_zero_wait_leaves_nothing",
                "test_L10_exclusive_writes_let_reads_wait",
            ),
        ),
        Rule(
            "L11",
            "A request that waited as long as it was told to ends with LockTimeout, which names"
            " the lock that blocks it.",
            _QUEUE,
            ("test_L11_timeout_names_the_blocking_lock_and_aborts_what_it_began",),
        ),
        Rule(
            "L12",
            "A client that waits for a lock counts as alive; a request that is unknown or ended"
            " raises NoSuchLock, one of an aborted transaction TxnAborted.",
            _QUEUE,
            (
                "test_L12_aborted_while_waiting",
                "test_T16_L12_L15_a_lock_without_a_transaction_is_kept_by_its_owner",
            ),
        ),
        Rule(
            "L13",
            "A held lock is never upgraded: a stronger one is a new request, at the end of the"
            " queue.",
            _QUEUE,
            ("test_L13_a_stronger_lock_queues",),
        ),
        Rule(
            "L14",
            "Transactions that ask once for everything cannot deadlock; any other deadlock ends"
            " when the wait of a request is over.",
            _QUEUE,
            (
                "test_L14_requests_for_all_locks_at_once_never_deadlock",
                "test_L14_a_deadlock_ends_with_the_wait",
            ),
        ),
        Rule(
            "L15",
            "What a transaction holds ends with it and cannot be unlocked before; a waiting"
            " request can.",
            _QUEUE,
            ("test_L15_the_locks_of_a_transaction_end_with_it",),
        ),
        Rule(
            "L16",
            "A request that is sent again after a lost reply is the same request and keeps its"
            " place.",
            _QUEUE,
            ("test_L16_a_request_that_is_sent_again_is_the_same_one",),
        ),
    ),
    (
        NotBuilt("L8", "Reads hold a lease on their snapshot (P12), no locks of partitions."),
        NotBuilt("L9", "There are no read locks to turn off: reads hold a lease (P12)."),
    ),
)
