"""What is not installed here, and without which a book cannot be built."""

from __future__ import annotations

from bookkit.problems import BookError, Problem


class Lacking(BookError):
    """Raised for what has to be installed first; the book itself may be as it must be."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(Problem(what, None, None, message))
