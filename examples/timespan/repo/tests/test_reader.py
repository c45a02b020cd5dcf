import unittest

from timespan import BadSpan, parse


class Reader(unittest.TestCase):
    def test_units(self):
        for text, seconds in (("1h 30m", 5400), ("90m", 5400), ("1.5h", 5400), ("1d2h", 93600), ("1:30", 5400)):
            with self.subTest(text):
                self.assertEqual(parse(text), seconds)

    def test_refuses(self):
        for text in ("", "h", "1x", "1:75", "5"):
            with self.subTest(text), self.assertRaises(BadSpan):
                parse(text)


if __name__ == "__main__":
    unittest.main()
