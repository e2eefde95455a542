"""SQL over tables that no catalog knows: statements as values (`parse`), and how plain Python runs them (`run`)."""
