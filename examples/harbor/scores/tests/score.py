import json
import sys
from xml.etree import ElementTree

cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
passed = sum(len(case) == 0 for case in cases)
least = int(sys.argv[2])
print(json.dumps({"reward": passed / max(least, len(cases)), "tests": passed}))
