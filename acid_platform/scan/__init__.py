"""The read path: from what is recorded of a table to batches of the rows that a snapshot sees."""
