"""`python -m coterie` is the command `coterie`."""

from coterie.cli import script

if __name__ == "__main__":
    script()
