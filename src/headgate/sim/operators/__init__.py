"""Operators in virtual time: queries as graphs of operators with queues, on a few workers, under any loop."""
