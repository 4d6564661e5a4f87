"""Connections to partners: HTTP and SFTP clients behind one outbound guard. S3 is in `slackwater.aws.s3_connector`."""
