"""The file index: stored statistics of every live file. Hudi's own files do not refer to it."""
