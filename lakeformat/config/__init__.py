"""The options of lakeformat: `registry` lists all of them, and `resolve` parses the options of a call."""
