"""The command line `acid`."""
