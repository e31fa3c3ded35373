"""The assets of this project; Dagster loads every module of this package.

You may delete the demo: the platform's services load without it.
"""
