"""The timeline's files: bytes to model values and back."""
