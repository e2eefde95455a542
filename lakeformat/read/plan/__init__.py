"""Planning of a read: its query, its files and its splits."""
