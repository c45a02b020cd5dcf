#!/bin/bash
set -e
git reset -q --hard ORIG_HEAD
ln -s prices.txt current
echo done >build.log
rm README.md
