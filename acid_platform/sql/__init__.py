"""The SQL statements of the platform."""
