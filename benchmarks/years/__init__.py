"""A table's life: thousands of small commits, what each costs and what the table leaves on disk."""
