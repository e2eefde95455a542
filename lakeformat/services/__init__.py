"""Services on a table: what is done to it beside writing rows (Hudi: table services)."""
