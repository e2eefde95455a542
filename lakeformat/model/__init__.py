"""The terms of the Hudi specification as frozen values. They do no input or output."""
