"""Infer the definition of a source from a sample file.

`infer` reads the first rows of a file and chooses the timestamp, the event id and the null values of the source. DuckDB
finds the delimiter and the header of a CSV file. `columns` finds the type of one column, and lists the ways in which
its values may be read. `definition_yaml` writes the definition.

Whether a definition fits is decided by the receiver's own readers: `ColumnReader` for each column, and `read_file` for
the whole definition. A choice that the sample does not decide is left to the user.
"""
