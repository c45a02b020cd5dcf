"""The hacks, one file each. Each defines one `HACK`; its docstring says what it does and where it is known from."""
