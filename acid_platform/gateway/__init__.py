"""Hive's Metastore Thrift protocol in front of the metastore, for Trino, Hive and Spark (P34).

Other engines read and write our tables under our transactions. Each call becomes calls of the
metastore's client; the gateway keeps no state that a restart would lose.
"""
