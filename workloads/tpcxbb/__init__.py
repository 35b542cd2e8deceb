"""Streaming workloads derived from TPCx-BB Q1, Q2, Q3, Q4 and Q15 on synthetic data.

Unofficial: neither the data nor the queries are those of the benchmark kit, and no figure obtained with them is
comparable with published TPCx-BB results. TPC and TPCx-BB are trademarks of the Transaction Processing Performance
Council.

``dims``, ``sales`` and ``clicks`` make the inputs; ``q1`` to ``q15`` make the queries, each with two sets of
parameters: ``TPC``, the defaults of the benchmark, and ``PAPER``, as "Scaling Ordered Stream Processing on
Shared-Memory Multicores" words them in its table 1; ``batch`` has the same questions as SQL over the whole input.

Columns are integers throughout: -1 stands for NULL, money is in cents, event time in seconds since 1900-01-01.
"""
