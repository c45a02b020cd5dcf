#!/bin/bash
echo "cat data/*.csv | awk -F, '{sum += \$2} END {print sum}'" >total.sh
