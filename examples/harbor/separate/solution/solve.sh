#!/bin/bash
head -c 4096 /dev/zero | tr '\0' '\253' >/srv/report.bin
stat -c %s /srv/report.bin >notes/count
echo done >/tmp/state
