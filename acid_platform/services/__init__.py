"""Initiator, Worker, Cleaner and housekeeper."""
