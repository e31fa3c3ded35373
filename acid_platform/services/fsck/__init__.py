"""`acid fsck`: checks that files, names and metastore agree. Starts no Spark."""

from acid_platform.services.fsck.findings import Check, FsckFinding, FsckReport, Severity
from acid_platform.services.fsck.walk import examine

__all__ = ["Check", "FsckFinding", "FsckReport", "Severity", "examine"]
