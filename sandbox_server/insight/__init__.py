"""What is wrong, in one word, and what that rests on."""
