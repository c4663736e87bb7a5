"""What can go wrong. Each class is one exit code of the program."""

from __future__ import annotations


class GraphweftError(Exception):
    """Any failure. ``file``, ``field`` and ``position`` say where, ``remedy`` what to do; each may be None."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        field: str | None = None,
        position: str | None = None,
        problem: str | None = None,
        remedy: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.field = field
        self.position = position
        self.problem = problem
        self.remedy = remedy
        self.checkpoint = checkpoint


class UsageError(GraphweftError, ValueError):
    """The call is wrong: an argument that does not exist, or two that exclude each other."""


class InputError(GraphweftError, ValueError):
    """Data or a setting's value are wrong."""


class DoesNotFit(GraphweftError, MemoryError):
    """It does not fit into memory; ``remedy`` says what would."""


class RankLost(GraphweftError):
    """A rank was lost; ``checkpoint`` names what to go on from."""


class Stopped(GraphweftError):
    """Somebody asked it to stop; ``checkpoint`` names what was saved."""


# As people import them; tracebacks and pickles say so too.
for _error in (GraphweftError, UsageError, InputError, DoesNotFit, RankLost, Stopped):
    _error.__module__ = "graphweft"
