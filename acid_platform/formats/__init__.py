"""Formats of data files: each opens a file, writes one, and says what of it a record keeps."""
