"""The files of a table: base files, their footers and column bounds; log files and their blocks; file slices.

A log file is read in these steps: `codec.log_blocks` finds its blocks, `block_order` chooses and orders the blocks to
merge, `block_content` decodes their contents. `log_reader` runs these steps. `slice_reader` merges the log records with
the rows of the base file.
"""
