"""Running a warehouse: the scheduler thread, the tracks, control commands, the lock, the trace."""
