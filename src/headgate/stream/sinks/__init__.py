"""Sinks: a list, a function, files, MQTT.

A sink is a description; the engine opens it for a run, writes the query's rows in order, and closes it.
"""

from headgate.stream.errors import OutputError
from headgate.stream.sinks.files import ToFiles, to_files
from headgate.stream.sinks.mqtt import ToMqtt, to_mqtt
from headgate.stream.sinks.sink import Collect, Sink, ToFunction, ToList, Writer, to_function, to_list

__all__ = [
    "Collect",
    "OutputError",
    "Sink",
    "ToFiles",
    "ToFunction",
    "ToList",
    "ToMqtt",
    "Writer",
    "to_files",
    "to_function",
    "to_list",
    "to_mqtt",
]
