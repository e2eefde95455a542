"""Where rows go: tagged, counted, put into buckets; decided from facts."""
