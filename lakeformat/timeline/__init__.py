"""The timeline of a table: its instants and their files, active and archived."""
