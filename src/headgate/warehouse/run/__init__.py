"""A warehouse that runs: the keeper thread, tracks, control commands, the lock, the trace."""
