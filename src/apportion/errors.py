"""The one exception that means "the user can fix this": its text is the whole message."""


class UserError(Exception):
    """Something outside the package is wrong; the message says what, and what to change."""
