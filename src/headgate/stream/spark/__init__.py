"""Queries inside Spark tasks: an engine instance in each Python worker, state in files that the table's commits
name."""
