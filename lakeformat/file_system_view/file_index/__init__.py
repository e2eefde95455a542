"""The file index: the stored column statistics of every live file. Hudi's own files do not refer to it."""
