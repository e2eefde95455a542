"""Upkeep of the metadata table: what each action adds to it, and how its partitions are made and dropped."""
