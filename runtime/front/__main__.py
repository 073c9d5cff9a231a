"""``python -m callboard`` is the command line, for where scripts are not on the path."""

from callboard.runtime.cli.main import main

if __name__ == "__main__":
    main()
