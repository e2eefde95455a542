"""``python -m benchmarks.skipping``: the share of the files that filters read after each engine's own layout.

The data are uniform, skewed or correlated, laid out by two or four columns in 256 files. lakeformat is judged by the
files that its reader opens. Peers are judged by the Parquet footers that they leave, which is the best result that they
can reach. See `benchmarks.skipping.__main__`.
"""
