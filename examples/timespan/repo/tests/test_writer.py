import unittest

from timespan import Sheet, clock, compact


class Writer(unittest.TestCase):
    def test_compact(self):
        self.assertEqual(compact(5400), "1h 30m")
        self.assertEqual(compact(90061), "1d 1h 1m 1s")
        self.assertEqual(compact(0), "0s")

    def test_clock(self):
        self.assertEqual(clock(3725), "1:02:05")

    def test_report(self):
        sheet = Sheet()
        sheet.log("mail", "20m")
        sheet.log("code", "1h")
        self.assertEqual(sheet.report(), "code: 1h\nmail: 20m\ntotal: 1h 20m")


if __name__ == "__main__":
    unittest.main()
