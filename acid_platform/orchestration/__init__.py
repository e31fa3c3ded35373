"""Dagster ops, jobs, sensors, schedules and checks."""
