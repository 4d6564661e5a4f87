"""Pull: files are listed at a partner, compared with the file cache, and fetched."""
