"""Tables as sources and sinks of Spark's streaming queries."""
