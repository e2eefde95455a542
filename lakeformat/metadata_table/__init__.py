"""Hudi's metadata table: reading the facts about files and keys that it stores."""
