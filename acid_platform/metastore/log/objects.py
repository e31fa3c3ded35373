"""stub"""


class ObjectLog: ...
