"""The write path: rows in, a published commit out.

Every write takes the same steps, in this order:

1. Plan the job: `plan` combines the options, the table and the input's columns into a `WriteJob`.
2. Prepare rows: `rows` adds keys and partition paths and, if necessary, stages the rows.
3. Lock the table, roll back dead writers, begin the commit: `lakeformat.transaction`.
4. Tag: `tagging` combines rows by key, and looks up the file groups that hold their keys.
5. Profile and buckets: `workload` assigns each row to a file group and writes the workload profile.
6. Handles: `handles` writes base files and log files.
7. Publish: `lakeformat.transaction` checks for conflicts and completes the commit.
8. After the commit: `lakeformat.transaction` releases the lock and runs hooks and table services.

`session` and `shuffled_session` carry out the steps. `statements` runs UPDATE and MERGE by the same steps. A direct
write (bulk_insert, large inserts, overwrites) skips step 4. In a direct Spark write, the tasks write their files (step
6) before the driver makes the workload profile (step 5).
"""
