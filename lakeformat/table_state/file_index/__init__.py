"""The file index: what is known of every live file, beside Hudi's own files."""
