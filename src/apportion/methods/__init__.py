"""The registry of return-decomposition methods. Adding one: a file, and a line here."""

from collections.abc import Callable
from typing import Any, NamedTuple

from apportion.core import registry
from apportion.core.types import Method
from apportion.methods import fixed, grd, ircr, rd, rrd, rudder, transformer


class Entry(NamedTuple):
    config: type[Any]  # a frozen dataclass; its docstring's first line is the method's summary
    make: Callable[[Any], Method]


METHODS: dict[str, Entry] = {
    "grd": Entry(grd.Config, grd.make),
    "rd": Entry(rd.Config, rd.make),
    "rrd": Entry(rrd.Config, rrd.make),
    "rrd-unbiased": Entry(rrd.UnbiasedConfig, rrd.make),
    "ircr": Entry(ircr.Config, ircr.make),
    "rudder": Entry(rudder.Config, rudder.make),
    "transformer": Entry(transformer.Config, transformer.make),
    "observed": Entry(fixed.ObservedConfig, fixed.make_observed),
    "oracle": Entry(fixed.OracleConfig, fixed.make_oracle),
}


def find(name: str) -> Entry:
    """A method by its name here, or a user's own by module:name."""
    return Entry(*registry.find("method", name, METHODS, Method))
