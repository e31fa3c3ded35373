"""What `make` runs. Set-up itself uses the standard library only."""
