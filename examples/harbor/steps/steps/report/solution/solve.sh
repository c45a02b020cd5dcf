#!/bin/bash
bash total.sh >report.txt
