"""Helpers of the tests: table builders, models, faults, oracles. README.md has a line for each module."""
