"""Every option lakeformat knows: `registry` lists them, `resolve` reads what a user gave."""
