"""The assets of this project: Dagster loads every module of this package.

Delete what is here: the platform's services load without it.
"""
