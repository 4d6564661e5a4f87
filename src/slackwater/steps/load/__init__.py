"""Steps that write rows to the outside, after a day is published."""
