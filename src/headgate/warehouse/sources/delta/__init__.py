"""A Delta table of another program as a source."""
