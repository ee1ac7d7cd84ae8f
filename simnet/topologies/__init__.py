"""Rules that build a fabric, one file each."""
