"""What every part uses: clock, disk, settings, table properties, addresses."""
