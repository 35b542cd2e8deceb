"""Whether a track of a run is stuck: its update goes on long after it should have been cancelled."""

from __future__ import annotations

from headgate.warehouse.schedule.glance import Glance

#: the run counts as stuck when the scheduler has not answered for so many seconds, and a track when its update goes on
#: for so long after it should have been cancelled
STUCK_SECONDS = 30.0


def stuck_track(glance: Glance) -> str:
    """Which track is stuck, and with what; empty if none is."""
    for each in glance.running:
        took = glance.now - each.began
        if each.began and took > each.limit + STUCK_SECONDS:
            limit = f"and should have been cancelled after {each.limit:.0f} s"
            return f"track {each.track} is stuck: its update of {each.name} has run for {took:.0f} s, {limit}"
    return ""
