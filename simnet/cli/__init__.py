"""The `simnet` command; one file per subcommand, heavy imports inside the function."""
