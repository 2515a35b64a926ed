"""Online training: settings, the loop, and who works for it. It yields snapshots and writes nothing down."""
