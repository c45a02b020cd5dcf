"""Statistics over many sessions: the service's health in one word, with the evidence."""
