"""A PostgreSQL table as a source: its rows as they grow, its changes, or its contents."""
