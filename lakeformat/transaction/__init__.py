"""From the claim of an instant to the commit: who lives, what conflicts, what is undone, who is told."""
