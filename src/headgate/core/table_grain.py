"""What every engine whose nodes are tables has in common: the simulator's and the warehouse's."""

from __future__ import annotations

from headgate.core.dispatch import LOOP_FEATURES

#: what such an engine can tell a policy about a table
TABLE_FEATURES = (
    *LOOP_FEATURES,
    *("priority", "class", "layer", "period", "setup_time", "time_per_unit", "cost", "selectivity"),
    *("pending", "head_time", "output_pending", "freshness_delta", "execution_time", "release_time", "next_release"),
)

#: a table that states no patience may wait this many of its periods before the guard strikes
PATIENCE_PERIODS = 20.0
