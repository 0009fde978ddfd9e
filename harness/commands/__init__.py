"""One module per command: what joins runner, clusters and judge."""
