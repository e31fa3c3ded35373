"""The benchmark `profile`: where the time of a statement goes, in our tables and in others'.

One process for each contender of `benchmarks.peers` runs the statements of a round of that
comparison, and records the wall clock time of the driver's parts, Spark's own figures of its jobs,
the CPU time of every group of threads, and samples of their stacks.
"""
