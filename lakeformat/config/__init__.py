"""All options of lakeformat: `registry` lists them, `resolve` parses the options that a user gives."""
