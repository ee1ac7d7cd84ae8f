"""One tree of errors; each knows the exit code the command line answers with."""

from __future__ import annotations


class SimnetError(Exception):
    """Base of every error this project raises on purpose."""

    exit_code = 2


class InvalidInput(SimnetError, ValueError):
    """The request is wrong: the text says what, where, the value and what to do instead."""


class Unsupported(SimnetError):
    """The request is sound, but this part cannot answer it; the text names one that can."""


class InvalidSchedule(SimnetError):
    """A schedule breaks a rule of the intermediate representation."""

    exit_code = 1


class WrongResult(SimnetError):
    """A schedule ran and did not produce what its collective promises."""

    exit_code = 1


class Deadlock(SimnetError):
    """A program waits for itself; the text names the cycle."""

    exit_code = 1


class Incomplete(SimnetError):
    """A run could not finish: a rank was lost or the time limit passed."""

    exit_code = 3


class ClaimFailed(SimnetError):
    """A study ran to its end and one of its claims does not hold."""

    exit_code = 1
