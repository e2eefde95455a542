"""Archiving: moving old instants from the timeline to the archive, so that the timeline stays short."""
