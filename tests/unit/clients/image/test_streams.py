"""Bytes through a program: what cannot be read ends the program too, and is what is said."""

import errno
import io

import pytest

from steps.clients import program_streams


class Damaged(io.BytesIO):
    """A file of which the second part cannot be read."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell():
            raise OSError(errno.EIO, "Input/output error")
        return super().read(3)


def cut_off(source: io.BytesIO) -> bytes:
    """Read it through a program as one that needs more of it than there is."""
    with program_streams.feed(["cat"], source) as plain:
        assert plain.read() == b"abc"
        raise EOFError("cut off")


def put_away(source: io.BytesIO) -> bytes:
    """Read it through a program as one that has closed what it reads before it fails for a reason of its own."""
    with program_streams.feed(["cat"], source) as plain:
        plain.close()
        raise EOFError("cut off")


def test_a_source_that_cannot_be_read_hangs_nobody_and_is_the_cause() -> None:
    with pytest.raises(OSError, match="Input/output error"):
        cut_off(Damaged(b"abcdef"))
    with pytest.raises(EOFError, match="cut off"):
        cut_off(io.BytesIO(b"abc"))
    with pytest.raises(EOFError, match="cut off"):
        put_away(io.BytesIO(b"abc"))


def test_all_of_a_source_comes_through() -> None:
    with program_streams.feed(["cat"], io.BytesIO(b"abc" * 100_000)) as plain:
        assert plain.read() == b"abc" * 100_000


def test_what_is_not_read_to_its_end_ends_all_the_same() -> None:
    with program_streams.feed(["cat"], io.BytesIO(bytes(10_000_000))) as plain:
        assert plain.read(1) == b"\0"
