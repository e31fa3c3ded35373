"""Where the metastore's log lies: a local directory, PostgreSQL, or an object store.

A log is a sequence of batches of events, and snapshots of the state between two of them. All else
follows from it: a start, a standby, a backup, an archive and a restore read the same batches and
the same snapshots.
"""
