"""realrun runs the schedules of simnet with PyTorch on real hardware and measures them."""
