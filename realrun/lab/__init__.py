"""A small real network on one Linux machine: namespaces as hosts, veth pairs as cables, tc as their speed.

`plan` says what there is (pure data), `network` makes and removes it, `ranks` runs one process per host.
"""
