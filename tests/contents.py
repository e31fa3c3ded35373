"""Contents of directories that no test reads: only their counts matter."""

from __future__ import annotations

from acid_platform.layout.file_entries import FileEntry, Footer, RecordedFiles


def counts(rows: int, size: int, files: int = 1) -> RecordedFiles:
    """Files that have this many rows and bytes together; the first has all of them."""
    return RecordedFiles(
        tuple(
            FileEntry(
                f"bucket_{number:05d}", 0 if number else size, Footer(0 if number else rows, True)
            )
            for number in range(files)
        )
    )
