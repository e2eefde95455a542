"""Dedupe: of rows with one record key in one partition the newest stays."""
