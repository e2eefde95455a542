"""What a write means, decided before anything is done: pure."""
