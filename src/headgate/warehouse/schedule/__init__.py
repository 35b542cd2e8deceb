"""Which update runs next: the scheduler, and the ledger of what each table costs and how stale it is."""
