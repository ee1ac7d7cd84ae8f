"""Thread-block programs from outside (MSCCL): per-rank, per-channel order with scratch buffers and dependencies."""
