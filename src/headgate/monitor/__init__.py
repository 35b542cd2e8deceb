"""Watching a run: a page, an API, metrics and alerts.

    series    values over time in a fixed amount of memory
    record    what is known of one run, whether it goes on or was recorded
    feed      what happens, for any number of viewers, none of whom can slow the run down
    watch     keeps the record of a running warehouse, and feeds viewers with it
    shown     what a page can show: a run that goes on, or a recorded one
    recorded  a run that is over, from its trace
    prospects when a table is expected to be updated, and what it would need to meet its target
    contents  what is in a table
    what_if   a recorded run under other settings; replaying computes it, in a process of its own
    bounding  how many times its lower bound a run is at, computed in a process of its own
    remote    a run in another process, by its control socket or its page
    top       the terminal view; top_rows is what it shows
    access    who may look, and who may change something
    plain_json  JSON that every reader takes
    api       the answers to requests, as JSON
    metrics   the same numbers for Prometheus
    server    the page and the API on a port

Nothing here decides anything. What a viewer changes goes through the same commands as the command line.
"""
