"""``python -m benchmarks.skipping``: which share of the files filters read, after each engine's own layout.

Uniform, skewed and correlated data by two and by four columns, 256 files each. Judged from the Parquet footers that
each engine leaves, by one judge. See `benchmarks.skipping.__main__`.
"""
