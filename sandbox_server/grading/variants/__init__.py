"""Makes false tests out of true ones: same names and inputs, another expectation. Pure; see docs/grading.md."""
