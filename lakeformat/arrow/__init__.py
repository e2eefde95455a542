"""Arrow data: brought to a schema, gathered by position, measured in bytes."""
