"""Watching a run: a page, an API, metrics and alerts.

    series    values over time in a fixed amount of memory
    record    what is known of one run, whether it goes on or was recorded
    feed      what happens, for any number of viewers, none of whom can slow the run down
    watch     keeps the record of a running warehouse, and feeds viewers with it
    access    who may look, and who may change something
    api       the answers to requests, as JSON
    metrics   the same numbers for Prometheus
    server    the page and the API on a port

Nothing here decides anything. What a viewer changes goes through the same commands as the command line.
"""
