"""Transactions: claims, heartbeats, conflict checks, commits, rollbacks, and followers of a commit."""
