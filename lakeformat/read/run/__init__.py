"""Execution of a read: pruning by statistics, and reading of batches."""
