# Runs in the work directory before the step.
mv incoming/february.csv data/ && rmdir incoming
