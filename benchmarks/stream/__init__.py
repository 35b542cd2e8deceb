"""What experiments on the stream engine share. Not benchmarks themselves: those are beside this folder."""
