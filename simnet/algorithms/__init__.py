"""Collective algorithms, one file each; `registry` finds them by looking at this folder."""
