"""Readers of file formats: each yields the blocks of a file as checked events."""
