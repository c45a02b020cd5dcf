"""The chaos suite: injects faults, one at a time, into real parts while a scripted trainer runs rollouts on them."""
