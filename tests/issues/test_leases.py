"""A reader whose lease is over gets SnapshotExpired, and never fewer rows (P12, P29)."""
