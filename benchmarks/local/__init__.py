"""The benchmark `local`: the local engine beside delta-rs, DuckLake, our Spark engine, plain ORC.

Every contender lives in a process of its own. The driver sends each of them the same statement in
turn, so that a slow minute of the machine meets all of them, and compares every answer with
DuckDB's on the raw rows.
"""
