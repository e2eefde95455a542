"""Transactions: claims, heartbeats, conflict checks, commits, rollbacks, and commit listeners."""
