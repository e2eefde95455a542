"""The files of a table: base files, their footers and columns' bounds; log files and their blocks; slices of both.

The way of a log file's bytes: `codec.log_envelope` finds its blocks, `block_order` says which of them count and in
which order, `data_block` and `delete_block` make columns of their contents, `log_reader` does it all; `slice_reader`
merges.
"""
