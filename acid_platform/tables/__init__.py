"""Tables: how they are declared, adopted, laid out for readers, and recovered."""
