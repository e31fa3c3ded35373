"""Initiator, Worker and Cleaner, what they would do next, erasure requests and fsck."""
