"""Rows on their way in: taken from the user, keyed, staged."""
