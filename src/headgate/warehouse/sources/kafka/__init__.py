"""Records of a Kafka topic as a source."""
