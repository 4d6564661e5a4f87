"""Requests to hosts of partners: which may be reached, and with which credentials."""
