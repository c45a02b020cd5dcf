"""One file per programming language, each with its LANGUAGE."""
