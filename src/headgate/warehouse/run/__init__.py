"""A warehouse that runs: the scheduler thread, tracks, control commands, the lock, the trace."""
