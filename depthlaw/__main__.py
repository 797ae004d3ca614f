"""``python -m depthlaw``: the command line, where no script is on the path."""

from depthlaw.cli.app import main

if __name__ == "__main__":
    main()
