"""Scheduling: which update runs next, and the ledger with costs, failures and staleness of each table."""
