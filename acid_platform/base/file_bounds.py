"""The most that a reader takes of a file that somebody else wrote, one bound for each kind.

Whoever reads such files names these numbers, and no others: a file of a few kilobytes may hold, or
say that it holds, more than any memory.
"""

LARGEST_FOOTER = 256 << 20
"""Bytes of the footer of an ORC or Parquet file, compressed or not."""
LONGEST_ROW = 1 << 24
"""Bytes of a line of text, of a row of CSV and of an object of JSON."""
MOST_NESTED = 100
"""Levels of types in types, and of values in values. Arrow and Python crash at some thousands."""
