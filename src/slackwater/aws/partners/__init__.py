"""Connections to partners from AWS: with secrets and roles of an account, and partners that are S3 buckets."""
