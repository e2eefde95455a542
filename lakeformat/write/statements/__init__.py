"""The statements UPDATE, DELETE and MERGE: their clauses and assignments, and the mergers that apply them (step 6)."""
