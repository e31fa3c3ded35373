"""The assets of this project. Delete this package: the platform's services still load."""

from assets.flights import ASSETS, CHECKS, JOBS

__all__ = ["ASSETS", "CHECKS", "JOBS"]
