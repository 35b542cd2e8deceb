"""Streams and tables on Spark: declaring them, keeping them fresh, reading them.

Importing this package does not import Spark; starting a warehouse does.
"""
