"""The write path: rows in, a published commit out.

Every write takes the same steps, in this order:

1. Plan the job: `lakeformat.write.decide` combines the options, the table and the input's columns into a `WriteJob`.
2. Prepare rows: `lakeformat.write.rows` adds keys and partition paths and, if necessary, stages the rows.
3. Lock the table, roll back dead writers, begin the commit (`lakeformat.transaction`).
4. Tag: combine the rows by key, then look up which file groups hold their keys (`lakeformat.write.place`,
`lakeformat.index`).
5. Profile and buckets: assign each row to a file group, write the workload profile (`lakeformat.write.place`).
6. Handles: write base files and log files (`lakeformat.write.make`).
7. Publish: check for conflicts, complete the commit (`lakeformat.transaction`).
8. After the commit: release the lock, run hooks and table services (`lakeformat.transaction`, `lakeformat.services`).

The sessions carry out the steps. `lakeformat.write.statements` runs UPDATE and MERGE on top of them.
"""
