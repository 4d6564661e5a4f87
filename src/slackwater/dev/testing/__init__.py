"""`slackwater test`: run pipelines on the rows of fixture files, and compare their results with the expected rows.

`definition` is the model of a fixture file, and `read_tests` finds and checks the files. `runner` runs one of them with
the loop of `slackwater dev`: `input_files` gives it the rows, `differences` compares the results. `report` writes them.
"""
