"""`python -m sandbox_server.cli`, where the command is not installed."""

from sandbox_server.cli import main

if __name__ == "__main__":  # processes of a pool import this module under another name
    main()
