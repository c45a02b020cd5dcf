"""One file a programming language, each with its LANGUAGE."""
