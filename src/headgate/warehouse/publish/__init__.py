"""Publishing tables: every version of a table is passed on to places outside of the warehouse, behind its updates."""
