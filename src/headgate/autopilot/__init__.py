"""The process beside a run under the policy ``auto``: it hears of every update and replays the last minutes.

    allowance   how much of a processor it may use
    __main__    the process itself

The run starts it, and decides what to do with what it says: see ``headgate.warehouse.run.autopilot``.
"""
