"""Parsing and checking of events.

`json_lines` and `formats` parse bodies and files. `event_checks` checks their events: it reads the column of each field
(`columns`, with the fast paths `string_columns` and `typed_columns`, and the reference `values` and `timestamps`),
collects `unknown_fields`, and adds `derived_columns`.
"""
