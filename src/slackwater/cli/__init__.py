"""The command line `slackwater`: it parses arguments, calls the library, and prints the result."""
