"""The metastore: transactions, write ids, locks and declarations, kept by one process in a log."""
