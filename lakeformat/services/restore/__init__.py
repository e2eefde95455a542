"""Undoing commits: restore to an instant, rollback of the last commit."""
