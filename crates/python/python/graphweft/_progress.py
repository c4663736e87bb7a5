"""Progress for people: a line in terminals and notebooks; everything else goes to ``logging``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

log = logging.getLogger("graphweft")
Event = dict[str, Any]
Watch = Callable[[Event], None]


class Bar:
    """One line that is rewritten: epoch, loss, scores."""

    WIDTH = 24

    def __init__(self) -> None:
        self._epochs = 0
        self._open = False

    def __call__(self, event: Event) -> None:
        if event["event"] == "begin":
            self._epochs = event["epochs"]
        elif event["event"] == "epoch" and self._epochs:
            done = event["epoch"] / self._epochs
            bar = "█" * int(done * self.WIDTH) + "░" * (self.WIDTH - int(done * self.WIDTH))
            scores = event["scores"]
            valid = f"  valid {scores['valid']:.2f}" if scores else ""
            text = f"\repoch {event['epoch']}/{self._epochs} {bar}  loss {event['loss']:.4f}{valid}"
            sys.stderr.write(text)
            sys.stderr.flush()
            self._open = event["epoch"] < self._epochs
            if not self._open:
                sys.stderr.write("\n")

    def close(self) -> None:
        """Ends the line if it is open."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False


def _is_watched() -> bool:
    """Whether a person looks on: in a terminal, or in a notebook, which rewrites a line too."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Watching:
    """Tells a bar, the caller's callbacks and the log."""

    def __init__(self, progress: bool | None, callbacks: list[Watch]) -> None:
        shown = _is_watched() if progress is None else progress
        self._bar = Bar() if shown else None
        self._callbacks = callbacks

    def __call__(self, event: Event) -> None:
        if event["event"] == "note":
            log.info("%s", event["text"])
        if self._bar:
            self._bar(event)
        for callback in self._callbacks:
            callback(event)

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.close()
