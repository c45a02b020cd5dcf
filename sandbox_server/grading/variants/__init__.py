"""False tests out of true ones: the same names and inputs, another expectation. Pure; docs/grading.md says what for."""
