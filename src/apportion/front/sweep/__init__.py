"""Many trainings, each an ordinary run folder of one sweep folder.

A `Job` (choosing.py) is one training under a name. `read_plan` (planning.py) makes jobs of a TOML file;
whoever wants others makes them directly. `carry_out` (carrying.py) checks them, runs those that are not
finished, on this machine or on a Ray cluster, and says how each stands:

    jobs = [Job("ant-grd", "Ant-v4", "grd", seeds=5, steps=300_000, settings={"method.compact": "none"})]
    carried = carry_out(jobs, Path("runs/ant"), How(jobs=2), quiet=False)
    if carried.done:
        runs = [Run.open(standing.run) for standing in carried.standings]
"""
