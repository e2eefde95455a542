"""Where a record key lives: from key ranges over footer filters to key columns."""
