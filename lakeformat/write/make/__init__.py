"""Files are made: handles, the direct way, the tasks of the exchange."""
