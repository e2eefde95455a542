"""UPDATE, DELETE and MERGE by condition: their clauses and assignments, and the mergers that apply them (step 6)."""
