"""Tables in DynamoDB: the file cache, the run table and the token table."""
