"""Table services: maintenance of a table other than writing rows (Hudi: table services)."""
