"""The interpreters of a schedule: check, execute, estimate, simulate (and realrun.executor)."""
