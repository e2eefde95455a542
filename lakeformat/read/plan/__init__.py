"""Plan a read: which files, row groups and splits. Values in, values out."""
