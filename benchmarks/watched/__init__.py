"""What `benchmarks.monitor` watches, and who looks at it."""
