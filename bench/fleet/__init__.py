"""The cost of many hosts: measured on one, then calculated and simulated."""
