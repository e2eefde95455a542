"""Frozen nouns of the Hudi specification: values without behaviour beyond their own rules."""
