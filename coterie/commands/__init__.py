"""What the commands do; `coterie.cli` only declares them, so that `--help` is instant."""
