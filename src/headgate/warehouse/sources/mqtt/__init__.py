"""MQTT messages as a source, received into a spool."""
