"""`acid fsck`: checks that files, names and metastore agree. Starts no Spark."""

from acid_platform.services.fsck.findings import Check, FsckFinding, Report, Severity
from acid_platform.services.fsck.walk import examine

__all__ = ["Check", "FsckFinding", "Report", "Severity", "examine"]
