"""Cleaning: deleting files that belong only to table versions that are no longer retained."""
