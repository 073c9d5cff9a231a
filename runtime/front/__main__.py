"""``python -m callboard``: the command line, for environments without the script on the path."""

from callboard.runtime.cli.main import main

if __name__ == "__main__":
    main()
