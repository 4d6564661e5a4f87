"""A generated year of a pulled source, over fakes of S3 and DynamoDB that enforce their limits: `make soak`."""
