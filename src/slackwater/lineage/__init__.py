"""Lineage: what a published version was made from and who has read it, from manifests, records and definitions."""
