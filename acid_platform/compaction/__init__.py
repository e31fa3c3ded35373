"""A compaction's plan, merge and checks, and the Cleaner's plan."""
