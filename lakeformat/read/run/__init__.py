"""Carry a planned read out."""
