"""Codes, results and exceptions. A miss is never an exception: it is a length of 0, or a result per page."""
from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The outcome of a call as a whole; the same numbers as gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class PageResult(enum.IntEnum):
    """The outcome for one page; the same numbers as on the wire."""

    OK = 0
    MISS = 1
    LAYOUT = 2
    STALE = 3
    LEASE_EXPIRED = 4
    CORRUPT = 5
    NO_SPACE = 6
    BUSY = 7
    TOO_LARGE = 8
    EXISTS = 9
    DENIED = 10
    DEADLINE = 11
    PEER_GONE = 12
    CANCELLED = 13
    INVALID = 14
    WRONG_SHARD = 15
    BREAKER_OPEN = 16


class Error(Exception):
    """A call that was refused or could not be made. `code` says why for programs, the text for people."""

    code: Code

    def __init__(self, code: Code, message: str):
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {self.args[0]}"


class InvalidArgument(Error, ValueError):
    """A documented limit was broken; do not retry."""


class Unavailable(Error, ConnectionError):
    """Router or node cannot be reached."""


class DeadlineExceeded(Error, TimeoutError):
    """The caller's time is over."""


_CLASSES = {Code.INVALID_ARGUMENT: InvalidArgument, Code.UNAVAILABLE: Unavailable, Code.DEADLINE_EXCEEDED: DeadlineExceeded}


def make_error(code: int, message: str) -> Error:
    """The exception for a status of the library."""
    try:
        known = Code(code)
    except ValueError:
        known = Code.UNKNOWN
    return _CLASSES.get(known, Error)(known, message)
