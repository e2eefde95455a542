"""Looking at a whole table: what it is, what is wrong with it, and what can be put right."""
