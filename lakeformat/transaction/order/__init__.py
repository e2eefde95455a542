"""Order and liveness: claims, conflicts, and the order of the steps of all writers."""
