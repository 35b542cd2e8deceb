"""Sources: the program itself, files, a generator with a rate, a TCP connection, MQTT.

A source is a description; the engine opens it for a run. Rows that do not fit the source's schema are rejected with the
reason, and the query goes on.
"""
