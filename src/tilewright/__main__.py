"""`python -m tilewright`, and the program `tilewright`: the command line."""

import sys


def main() -> None:
    """The program; Ctrl-C ends it quietly while it is still being imported, too."""
    try:
        from tilewright.driver.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
