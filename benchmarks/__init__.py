"""One workload for several engines, which run side by side: ``python -m benchmarks``."""
