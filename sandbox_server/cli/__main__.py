"""`python -m sandbox_server.cli`, where the command is not installed."""

from sandbox_server.cli import main

main()
