"""`python -m jacquard`."""

from jacquard.cli import main

if __name__ == "__main__":
    main()
