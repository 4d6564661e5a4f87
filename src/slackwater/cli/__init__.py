"""The command line: `slackwater`. It parses, calls the library, and shows the answer."""
