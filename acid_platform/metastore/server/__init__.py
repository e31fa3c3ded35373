"""The metastore process: connections, group commit, snapshots, election, archive, restore."""
