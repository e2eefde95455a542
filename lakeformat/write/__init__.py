"""The write path, one module per step: keys, combining, tagging, bucketing, merging, committing."""
