"""Cost models: what one message costs before any sharing, one file each."""
