#!/bin/bash
# One argument: the selected test files, joined by commas. Runs them; what it prints is for parser.py.
IFS=, read -r -a files <<< "$1"
python -m pytest -rA -p no:cacheprovider "${files[@]}"
