"""One workload, many engines, side by side in one run: ``python -m benchmarks``."""
