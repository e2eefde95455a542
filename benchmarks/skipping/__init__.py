"""``python -m benchmarks.skipping``: which share of the files filters read, after each engine's own layout.

Uniform, skewed and correlated data by two and by four columns, 256 files each. Ours are judged by the files that our
reader opens; peers by the Parquet footers they leave, which is the best that they can do. See
`benchmarks.skipping.__main__`.
"""
