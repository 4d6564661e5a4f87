"""`slackwater init --from`: a project that begins with a user's own data.

`find_samples` finds the files of each source. `sample_rows` reads some rows of one, by the inferred definition.
`definitions` writes a pipeline that counts the rows, and its test. `write_project` puts the files together.
"""
