"""Declaring a warehouse: the Warehouse class, the specs it builds, their checks, pipeline files."""
