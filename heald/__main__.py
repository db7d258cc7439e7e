"""`python -m heald`."""

from heald.cli import main

if __name__ == "__main__":
    main()
