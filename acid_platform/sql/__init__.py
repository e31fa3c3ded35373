"""Hive SQL over the tables of a warehouse: sqlglot parses it, one of the engines runs it.

A script goes from `sql_session` to `parse`, and from there its statements to the modules `run_…`:

- `scripts` puts literals in the place of `:name`;
- what a pattern recognises is an entry of the `Commands` in `run_shows`, `run_operations`,
  `run_columns` or `run_definitions`; CREATE TABLE and VIEW are parsed in `declarations`;
- what changes rows is divided by `parse_changes`; `run_changes` makes of it the value that the verb
  of its name runs, in a transaction that begins with its locks;
- a query is planned and run by `run_queries`. `scopes` tells its tables, `column_references` what
  the names of columns mean and which no table has, `pruning` what a scan needs.
"""

from acid_platform.sql.answers import Answer, Done
from acid_platform.sql.sql_session import SqlSession, TransactionSession

__all__ = ["Answer", "Done", "SqlSession", "TransactionSession"]
