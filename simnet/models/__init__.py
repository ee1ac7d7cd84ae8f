"""Neural networks as layer tables, one file each."""
