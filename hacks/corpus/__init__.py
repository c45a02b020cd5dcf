"""The hacks, one file each; every file gives one `HACK`, its docstring says what it does and where it is known from."""
