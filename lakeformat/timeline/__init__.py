"""Instants, and their files."""
