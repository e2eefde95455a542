"""The engines of the benchmark. Each module has ``open_engine(table)``."""
