"""Sinks: a list, a function, files, MQTT.

A sink is a description; the engine opens it for a run, writes the query's rows in order, and closes it.
"""
