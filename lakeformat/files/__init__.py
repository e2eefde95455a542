"""Log files: blocks of rows and deletes appended to a file group, and what they say together.

The way of the bytes: `envelope` finds the blocks of a file, `block_order` says which of them count and in which order,
`data_block` and `delete_block` make columns of their contents, `log_reader` does it all.
"""
