"""The rules of the metastore: requests and the state in, events and answers out.

Pure: no clock, no file, no socket and no database, so that a simulator can drive them.
"""
