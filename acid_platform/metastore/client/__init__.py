"""How programs talk to the metastore: connections, transactions, heartbeats, backups."""
