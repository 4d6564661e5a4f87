"""Infer the definition of a source from a sample file.

`read_sample` reads the first rows of a file, a `sample`; DuckDB finds the delimiter and the header of CSV. `columns`
finds the type of one column, and lists the ways in which its values may be read. `infer` chooses the timestamp, the
event id and the null values of the source. `definition_yaml` writes the definition.

Whether a definition fits is decided by the receiver's own readers: `ColumnReader` for each column, and `read_file` for
the whole definition. A choice that the sample does not decide is left to the user.
"""
