"""The two chains of the benchmark `stream_peers`, on other stream processors and on Headgate.

`inputs` writes the rows and says what must come out, `contest` runs one contender after the other. A peer is a module
that runs as a process of its own, in a virtual environment of its own (see `environment`); with `protocol` it
needs nothing of this project but that one file of the standard library.
"""
