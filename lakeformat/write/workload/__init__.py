"""Step 5 of a write: count the tagged rows per file group, and assign them to buckets."""
