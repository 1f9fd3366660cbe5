"""A process that's killed at each of its writes to SQLite, one run for each, and what is found afterwards."""
