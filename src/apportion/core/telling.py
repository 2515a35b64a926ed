"""How far something that takes long has come, for whoever wants to know."""

from collections.abc import Callable

Tell = Callable[[int, int], None]  # told how much is done, of how much


def nobody(done: int, of: int) -> None:
    """Is told, and says nothing."""
