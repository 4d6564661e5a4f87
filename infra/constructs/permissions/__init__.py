"""Roles and the permissions that they are granted."""
