"""Cleaning: deleting files that only versions of the table need which are no longer kept."""
