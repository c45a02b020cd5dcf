"""The benchmarks: this server and its peers on the same machine, in the same run. `python -m bench --help`."""
