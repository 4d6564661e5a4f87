"""What steps share that read from and write to other systems: files, tables in databases, rows of declared types."""
