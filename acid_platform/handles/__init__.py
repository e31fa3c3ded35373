"""What its user holds: a warehouse, its tables, transactions and snapshots."""
