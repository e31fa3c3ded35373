"""What every part uses: errors, clock, disk, settings, table properties, addresses."""
