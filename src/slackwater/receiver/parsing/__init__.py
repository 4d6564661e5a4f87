"""Parse and check events.

`json_lines` parses pushed bodies, `formats` parses pulled files. `event_checks` then checks the events: it reads the
column of each field with `columns`, collects unknown fields with `json_values`, and derives columns. `columns` has two
fast paths for whole columns, `string_columns` and `typed_columns`. All other values are read one by one with `values`
and `timestamps`, which define what is accepted; `patterns` has the regular expressions of both.
"""
