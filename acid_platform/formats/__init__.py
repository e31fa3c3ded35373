"""Formats of data files: rows with keys in memory, and the one door to the files that hold them.

`data_file` says what a format is asked for: a second one for tables with full CRUD is a room like
`formats.orc`, or a module like `formats.parquet`, and a case in `file_access`.
"""
