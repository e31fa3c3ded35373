"""The most that a reader takes of a file that somebody else wrote, one for each kind (P65).

Whoever reads such files names these numbers, and no others: a file of a few kilobytes may hold, or
say that it holds, more than any memory.
"""

LARGEST_FOOTER = 256 << 20
"""Bytes of the footer of an ORC or Parquet file, compressed or not."""
MOST_PARTS = 1 << 20
"""Columns and stripes that a footer names, each of which is an object of hundreds of bytes."""
LONGEST_ROW = 1 << 24
"""Bytes of a line of text, of a row of CSV and of an object of JSON."""
MOST_COLUMNS = 10_000
"""Columns of a file of CSV or JSON."""
MOST_FIELDS = 1_000
"""Names in an object of JSON within another."""
BATCH_BYTES = 64 << 20
"""Bytes of a batch of rows, where a file decides how long a row is."""
BATCH_VALUES = 1 << 20
"""Values of a batch of rows of text, of which a row that lacks them has as many as any other."""
MOST_OF_A_ROW = 1 << 23
"""Values in the structs of a row of text, of which an empty one has as many as any other."""
LARGEST_PIECE = 1 << 30
"""Bytes of the values of a row group or stripe that takes fewer bytes in the file than
`MOST_UNPACKED` says. Numbers beyond it, of which columns of nothing but NULL have as many, are read
in pieces."""
LARGEST_DATABASE = 4 * LARGEST_PIECE
"""Bytes that another library may take for a file of somebody else: DuckDB unpacks 2,048 rows
together, and pyiceberg a row group of Parquet."""
MOST_REPEATED = 1 << 20
"""Values of a column for each byte that it takes in the file: one that all rows have, as NULL,
takes far less than a bit."""
MOST_UNPACKED = 64
"""How many times as many bytes the values of a large row group or stripe may have."""
MOST_NESTED = 100
"""Levels of types in types, and of values in values. Arrow and Python crash at some thousands."""
