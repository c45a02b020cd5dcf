"""The chaos suite: real parts, harmed one by one while a scripted trainer runs rollouts through them."""
