"""Step 1 of a write: plan the job, before anything is written to the timeline."""
