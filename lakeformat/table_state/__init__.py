"""The table at an instant: which files it is made of, and what is known of them."""
