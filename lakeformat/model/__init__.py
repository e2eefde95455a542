"""The terms of the Hudi specification as frozen values, which know only their own rules."""
