"""Steps 4 and 5 of a write: tag the rows, count them, assign them to buckets."""
