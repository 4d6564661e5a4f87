"""Packed objects: the small objects of an hour, written again as one."""
