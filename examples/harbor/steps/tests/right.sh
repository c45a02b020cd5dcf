# right FILES...: the sum of the second column of data/FILES, as total.sh must print it.
right() { (cd data && awk -F, '{sum += $2} END {print sum}' "$@"); }
