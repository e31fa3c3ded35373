"""Files of the warehouse through pyarrow.fs, and ORC inspection."""
