"""`python -m tilewright` is the program `tilewright`."""

from tilewright.driver.cli import main

if __name__ == "__main__":
    main()
