"""Files in a directory as a source."""
