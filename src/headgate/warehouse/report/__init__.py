"""Reports of runs with charts, and drawings of the graph of tables."""
