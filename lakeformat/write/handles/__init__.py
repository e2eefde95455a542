"""Step 6 of a write: handles that turn one bucket into one base file or log file."""
