"""The registry of return-decomposition methods. Adding one: a file, and a line here."""

from apportion.core import registry
from apportion.core.registry import Entry
from apportion.core.types import Method
from apportion.methods import (
    align_rudder,
    diaster,
    fixed,
    gp_lrr,
    grd,
    hopfield_rudder,
    ircr,
    rbt,
    rd,
    rrd,
    rudder,
    transformer,
)

METHODS: dict[str, Entry[Method]] = {
    "grd": Entry(grd.Config, grd.make),
    "rd": Entry(rd.Config, rd.make),
    "rrd": Entry(rrd.Config, rrd.make),
    "rrd-unbiased": Entry(rrd.UnbiasedConfig, rrd.make),
    "ircr": Entry(ircr.Config, ircr.make),
    "rudder": Entry(rudder.Config, rudder.make),
    "hopfield-rudder": Entry(hopfield_rudder.Config, hopfield_rudder.make),
    "align-rudder": Entry(align_rudder.Config, align_rudder.make),
    "transformer": Entry(transformer.Config, transformer.make),
    "rbt": Entry(rbt.Config, rbt.make),
    "diaster": Entry(diaster.Config, diaster.make),
    "gp-lrr": Entry(gp_lrr.Config, gp_lrr.make),
    "observed": Entry(fixed.ObservedConfig, fixed.make_observed),
    "oracle": Entry(fixed.OracleConfig, fixed.make_oracle),
}


def find(name: str) -> Entry[Method]:
    """A method by its name here, or a user's own by module:name."""
    return registry.find("method", name, METHODS, Method)
