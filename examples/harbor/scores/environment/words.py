def count(text: str) -> int:
    return len(text.split(" "))


def longest(text: str) -> int:
    return max(count(line) for line in text.split())
