"""One script per figure of the papers: what the paper says, what came out here, and whether it holds.

``python -m benchmarks --list`` names the scripts; ``python -m benchmarks NAME --smoke`` tries one in seconds.
A script is a module of this package that holds one ``BENCHMARK`` (see ``benchmarks.harness``). It knows the
experiment; the harness knows options, processes, files and reports, and nothing of any experiment.
"""
