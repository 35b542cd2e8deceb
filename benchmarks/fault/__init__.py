"""Real faults: a warehouse run by `headgate run` on real Spark, hit while files land, and judged by an oracle.

`pipeline` declares the tables, `feeder` lands the files, `oracle` says what the tables must hold, `process` starts and
watches the run, `kinds` has the faults, `trial` puts them together. `levels` reads what a process uses, for `overload`.
"""
