"""Dedupe: keeping only the newest of the rows that share a record key in one partition."""
