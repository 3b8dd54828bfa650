"""What can be wrong, and what cannot be done here."""


class Skip(Exception):
    """This machine, or this guest, cannot run it; the reason is told and counted."""


class Failure(Exception):
    """A case has shown that something is wrong."""
