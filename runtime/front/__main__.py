"""``python -m callboard`` is the command line, for where scripts are not on the path."""

from callboard.runtime.cli import main

if __name__ == "__main__":
    main()
