"""Stream queries inside Spark tasks: each Python worker runs an engine; a table's commits name the files of states.

on_spark, hosted_frame        what a table's function calls, and the frame that it returns
update, passes, ordering      the driver: the queries of one update, the Spark job, the order of its rows
hosted_query                  what is sent between driver and tasks
task, states, limits          the Python worker: runs the queries, restores and saves states, limits time and memory
state_files, fingerprint      the format of state files, and whether stored states fit a changed query
tcp_quickack                  saves 40 ms per task
"""
