"""The one exception that means "the user can fix this": its text is the whole message."""


class UserError(Exception):
    """Something outside the package is wrong; the message says what, and what to change."""

    def __init__(self, message: str, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage  # the command line itself is wrong
