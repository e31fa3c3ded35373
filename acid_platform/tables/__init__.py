"""What is known of tables: how they are declared, adopted, opened and recovered."""
