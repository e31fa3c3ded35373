"""The Initiator's decision, the Worker's plan and the Cleaner's plan: pure functions of values."""
