"""Upgrades and downgrades between table versions, on request."""
