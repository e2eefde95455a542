"""The way of a write from its begin to its commit, and what runs around the commit."""
