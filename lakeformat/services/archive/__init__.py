"""Archiving: taking old instants off the timeline, so that it stays short."""
