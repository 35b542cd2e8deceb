"""Streaming workloads known from the literature, as queries of the stream engine with inputs of their own."""
