"""Alerts: telling people outside when a table needs them, once, and once when it does not any more."""
