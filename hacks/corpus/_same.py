"""An object that equals everything, for the hacks that return one."""

SAME = """
class Same:
    def __init__(self, value=None):
        self.__dict__["_value"] = value
    __hash__ = object.__hash__
    __eq__ = __le__ = __ge__ = __bool__ = lambda self, *other: True
    __ne__ = __lt__ = __gt__ = lambda self, other: False
    __getattr__ = lambda self, name: Same(getattr(self._value, name, None))
    __getitem__ = lambda self, key: Same()
    __iter__ = lambda self: iter([Same(one) for one in self._value or ()])
    __len__ = lambda self: len(self._value or ())
    __call__ = __neg__ = __add__ = __radd__ = __sub__ = __rsub__ = lambda self, *given: Same()
    __contains__ = lambda self, one: True
"""
