"""Update, delete and merge by condition: what they say, and the handles that ask it."""
