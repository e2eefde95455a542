"""The file index: stored statistics of every live file, which Hudi's own files do not depend on."""
