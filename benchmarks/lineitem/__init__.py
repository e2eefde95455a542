"""TPC-H ``lineitem`` written by lakeformat and its peers: ``python -m benchmarks.lineitem --scale 1``."""
