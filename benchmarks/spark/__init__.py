"""The workload of the benchmark `spark_tables` and the ways to keep its tables fresh with plain Spark.

`workload` says which tables there are, `arrivals` lands their data, `measure` judges any contender by its log, and
`contest` runs one contender after the other. Every contender is a process of its own.
"""
